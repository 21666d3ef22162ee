//! Compares Kubernetes quantities (`1Gi`, `1500M`, `2e9`), which are equal or not by value and not
//! by spelling.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Compares two quantities; `None` if one of them can't be read.
pub fn compare(a: &Quantity, b: &Quantity) -> Option<Ordering> {
    Some(nano(&a.0)?.cmp(&nano(&b.0)?))
}

/// The value in billionths, the smallest step that Kubernetes knows.
fn nano(text: &str) -> Option<i128> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (mantissa, decimals) = parse_number(number)?;
    let scale = scale(suffix)?;
    let value = mantissa.checked_mul(scale)?;
    Some(value / 10_i128.checked_pow(decimals)?)
}

/// `-1.25` as (-125, 2).
fn parse_number(text: &str) -> Option<(i128, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    Some((digits.parse().ok()?, u32::try_from(fraction.len()).ok()?))
}

/// What one unit of a suffix is, in billionths.
fn scale(suffix: &str) -> Option<i128> {
    const UNIT: i128 = 1_000_000_000;
    let binary = |power: u32| UNIT.checked_mul(1024_i128.checked_pow(power)?);
    let decimal = |power: u32| UNIT.checked_mul(1000_i128.checked_pow(power)?);
    match suffix {
        "" => Some(UNIT),
        "n" => Some(1),
        "u" => Some(1000),
        "m" => Some(1_000_000),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => exponent(suffix),
    }
}

/// `e9` or `E-3`.
fn exponent(suffix: &str) -> Option<i128> {
    const UNIT_POWER: i32 = 9;
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    10_i128.checked_pow(u32::try_from(power.checked_add(UNIT_POWER)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        for (a, b, expected) in [
            ("1Gi", "1024Mi", Some(Ordering::Equal)),
            ("1Gi", "1G", Some(Ordering::Greater)),
            ("1.5Gi", "1536Mi", Some(Ordering::Equal)),
            ("2e9", "2G", Some(Ordering::Equal)),
            ("2E3", "2k", Some(Ordering::Equal)),
            ("500m", "0.5", Some(Ordering::Equal)),
            ("1", "2", Some(Ordering::Less)),
            ("10Ei", "9Ei", Some(Ordering::Greater)),
            ("1e-3", "1m", Some(Ordering::Equal)),
            ("", "1", None),
            ("x", "1", None),
            ("1Zi", "1", None),
            ("1e99", "1", None),
        ] {
            assert_eq!(compare(&Quantity(a.into()), &Quantity(b.into())), expected, "{a} {b}");
        }
    }
}
