//! Checking settings: every problem is kept, so that all of them are reported at once.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use jiff::fmt::friendly::SpanParser;

/// What is wrong with the settings looked at so far.
///
/// Flags stand without dashes (`nats-url`); the environment variable of a flag follows from it.
#[derive(Debug, Default)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Notes that the flag's value is not allowed, and what is.
    pub fn add(&mut self, flag: &str, value: &str, allowed: &str) {
        self.0.push(format!("--{flag} ({}) is {value:?}: {allowed}", variable(flag)));
    }

    /// The parsed value; an error of `parse` says what is allowed.
    pub fn parse<T>(
        &mut self,
        flag: &str,
        value: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        parse(value).map_err(|allowed| self.add(flag, value, &allowed)).ok()
    }

    /// As [`parse`](Self::parse), for a flag that may be left out. An empty value counts as left
    /// out, since manifests tend to set variables to nothing.
    pub fn parse_optional<T>(
        &mut self,
        flag: &str,
        value: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        given(value).and_then(|value| self.parse(flag, value, parse))
    }

    /// Takes over the problems of a group of settings.
    pub fn group<T>(&mut self, result: Result<T, Vec<String>>) -> Option<T> {
        result.map_err(|problems| self.0.extend(problems)).ok()
    }

    /// What `build` makes of the values if there was no problem with any; `build` may rely on
    /// every required value being there.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Vec<String>> {
        if !self.0.is_empty() {
            return Err(self.0);
        }
        build().ok_or_else(|| vec!["a required setting is missing".to_owned()])
    }
}

/// The environment variable of a flag: `nats-url` is `CARRICK_NATS_URL`.
pub fn variable(flag: &str) -> String {
    format!("CARRICK_{}", flag.replace('-', "_").to_uppercase())
}

/// The value of a flag, unless it is left out or empty.
pub(super) fn given(value: Option<&str>) -> Option<&str> {
    value.filter(|value| !value.is_empty())
}

/// A positive duration, as `10s`, `500ms` or `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match SpanParser::new().parse_unsigned_duration(text) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("use a duration above zero, as 500ms, 10s, 2m or 24h".to_owned()),
    }
}

/// A positive number of bytes, as `1GiB` or `500MB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size.as_u64()),
        _ => Err("use a size above zero, as 64MiB, 1GiB or 500MB".to_owned()),
    }
}

/// A number of the range, ends included.
pub fn number(min: u32, max: u32) -> impl FnOnce(&str) -> Result<u32, String> {
    move |text| match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("use a number from {min} to {max}")),
    }
}

/// A file that this process can read.
pub fn readable_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match fs::File::open(&path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => Ok(path),
        Ok(_) => Err("use the path of a file, this is not one".to_owned()),
        Err(error) => Err(format!("use the path of a readable file ({error})")),
    }
}

/// An IP address with a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use an IP address and a port, as 127.0.0.1:9461".to_owned())
}

/// A DNS-1123 label, as Kubernetes wants it for namespaces.
pub fn dns_label(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    valid.then(|| text.to_owned()).ok_or_else(|| {
        "use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("10s", Some(Duration::from_secs(10))),
            ("500ms", Some(Duration::from_millis(500))),
            ("2m", Some(Duration::from_mins(2))),
            ("24h", Some(Duration::from_hours(24))),
            ("1h30m", Some(Duration::from_mins(90))),
            ("0s", None),
            ("10", None),
            ("-1s", None),
            ("", None),
        ] {
            assert_eq!(duration(text).ok(), expected, "{text:?}");
        }
        for (text, expected) in [
            ("1GiB", Some(1 << 30)),
            ("64 MiB", Some(64 << 20)),
            ("500MB", Some(500_000_000)),
            ("0", None),
            ("much", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_label_is_a_dns_1123_label() {
        for (text, valid) in [
            ("carrick", true),
            ("a", true),
            ("a-1", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(dns_label(text).is_ok(), valid, "{text:?}");
        }
    }

    #[test]
    fn a_file_must_be_there_and_be_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        fs::write(&file, "").unwrap();
        assert_eq!(readable_file(file.to_str().unwrap()), Ok(file));
        assert!(readable_file(directory.path().to_str().unwrap()).is_err());
        assert!(readable_file("/nowhere/ca.pem").unwrap_err().contains("No such file"));
    }

    #[test]
    fn an_empty_optional_value_is_left_out() {
        let mut problems = Problems::default();
        assert_eq!(problems.parse_optional("nats-ca", Some(""), readable_file), None);
        assert_eq!(problems.finish(|| Some(())), Ok(()));
    }
}
