//! The pinned binaries that the testbed runs: built from Go modules into a cache of the user.
//!
//! The modules are in `tools/`, each with its own `go.mod` and `go.sum`. A binary's folder in the
//! cache is named after a digest of those, so that another version is another folder.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

/// The oldest Go that the modules can be built with.
const GO: (u32, u32) = (1, 26);
const TAIL: usize = 20;

struct Module {
    folder: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

macro_rules! module {
    ($folder:literal) => {
        Module {
            folder: $folder,
            go_mod: include_str!(concat!("../tools/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../tools/", $folder, "/go.sum")),
        }
    };
}

const KUBERNETES: Module = module!("kubernetes");

struct Tool {
    name: &'static str,
    /// As in `go.mod`, without the `v`.
    version: &'static str,
    module: Module,
    package: &'static str,
    /// The variable that the program prints as its version.
    version_variable: Option<&'static str>,
}

const KUBE_APISERVER: Tool = Tool {
    name: "kube-apiserver",
    version: "1.36.3",
    module: KUBERNETES,
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
    version_variable: Some("k8s.io/component-base/version.gitVersion"),
};
const KUBE_CONTROLLER_MANAGER: Tool = Tool {
    name: "kube-controller-manager",
    version: "1.36.3",
    module: KUBERNETES,
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    version_variable: Some("k8s.io/component-base/version.gitVersion"),
};
const ETCD: Tool = Tool {
    name: "etcd",
    version: "3.7.3",
    module: module!("etcd"),
    package: "go.etcd.io/etcd/server/v3",
    version_variable: None,
};
const NATS_SERVER: Tool = Tool {
    name: "nats-server",
    version: "2.15.2",
    module: module!("nats-server"),
    package: "github.com/nats-io/nats-server/v2",
    version_variable: None,
};
const NATS: Tool = Tool {
    name: "nats",
    version: "0.5.0",
    module: module!("natscli"),
    package: "github.com/nats-io/natscli/nats",
    version_variable: Some("main.version"),
};
const HELM: Tool = Tool {
    name: "helm",
    version: "4.3.1",
    module: module!("helm"),
    package: "helm.sh/helm/v4/cmd/helm",
    version_variable: Some("helm.sh/helm/v4/internal/version.version"),
};

/// Where the binaries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager.
    pub kube_controller_manager: PathBuf,
    /// etcd.
    pub etcd: PathBuf,
    /// nats-server.
    pub nats_server: PathBuf,
    /// The NATS command line, for people.
    pub nats: PathBuf,
    /// helm.
    pub helm: PathBuf,
}

impl Tools {
    /// The binaries, if all have been built.
    pub fn locate() -> Result<Self> {
        let cache = cache()?;
        Self::each(|tool| {
            let binary = tool.binary(&cache);
            if !binary.is_file() {
                bail!("{} {} is not built: run `cargo xtask tools`", tool.name, tool.version);
            }
            Ok(binary)
        })
    }

    /// Builds the binaries that are missing, with a line for each on `out`.
    pub fn ensure(out: &mut impl Write) -> Result<Self> {
        let cache = cache()?;
        Self::each(|tool| tool.ensure(&cache, out))
    }

    fn each(mut path: impl FnMut(&Tool) -> Result<PathBuf>) -> Result<Self> {
        Ok(Self {
            etcd: path(&ETCD)?,
            nats_server: path(&NATS_SERVER)?,
            kube_apiserver: path(&KUBE_APISERVER)?,
            kube_controller_manager: path(&KUBE_CONTROLLER_MANAGER)?,
            helm: path(&HELM)?,
            nats: path(&NATS)?,
        })
    }
}

impl Tool {
    fn ensure(&self, cache: &Path, out: &mut impl Write) -> Result<PathBuf> {
        let (name, version) = (self.name, self.version);
        let binary = self.binary(cache);
        if binary.is_file() {
            writeln!(out, "{name} {version}: cached")?;
            return Ok(binary);
        }
        check_go()?;
        let folder = binary.parent().expect("a binary is in a folder of the cache");
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let _lock = lock(&folder.join("lock"), name, out)?;
        if binary.is_file() {
            writeln!(out, "{name} {version}: built by another process")?;
            return Ok(binary);
        }
        write!(out, "building {name} {version} … ")?;
        out.flush()?;
        let start = Instant::now();
        let built = self.build(folder);
        let result = if built.is_ok() { "" } else { " (it failed)" };
        writeln!(out, "{} s{result}", start.elapsed().as_secs())?;
        // Only a whole binary ever has the final name.
        fs::rename(built?, &binary).with_context(|| format!("make {}", binary.display()))?;
        Ok(binary)
    }

    /// Builds into a passing name in `folder` and gives that.
    fn build(&self, folder: &Path) -> Result<PathBuf> {
        // Not the same for all: the go of a builder that was killed may still be at work.
        let unfinished = folder.join(format!("unfinished-{}", process::id()));
        let log = folder.join("build.log");
        let output = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        let status: io::Result<ExitStatus> = Command::new("go")
            .args(["build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags"])
            .arg(self.ldflags())
            .arg("-o")
            .args([unfinished.as_os_str(), self.package.as_ref()])
            .current_dir(modules.join(self.module.folder))
            .envs([
                ("GOTOOLCHAIN", "local"),
                ("CGO_ENABLED", "0"),
                ("GOFLAGS", ""),
                ("GOWORK", "off"),
            ])
            .env_remove("GOOS")
            .env_remove("GOARCH")
            .stdout(output.try_clone()?)
            .stderr(output)
            .status();
        if status.context("run go")?.success() {
            return Ok(unfinished);
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
        bail!("go cannot build {} (all of its output: {}):\n  {tail}", self.name, log.display());
    }

    fn ldflags(&self) -> String {
        match self.version_variable {
            Some(variable) => format!("-s -w -X {variable}=v{}", self.version),
            None => "-s -w".to_owned(),
        }
    }

    fn binary(&self, cache: &Path) -> PathBuf {
        let mut digest = Sha256::new();
        for part in [self.module.go_mod, self.module.go_sum, self.package, &self.ldflags()] {
            digest.update(part);
            digest.update([0]);
        }
        let digest = digest.finalize();
        let key = digest[..6].iter().fold(0_u64, |key, byte| key << 8 | u64::from(*byte));
        cache.join(format!("{}-{}-{key:012x}", self.name, self.version)).join(self.name)
    }
}

fn cache() -> Result<PathBuf> {
    let folder =
        |variable| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    folder("CARRICK_TOOLS_DIR")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("carrick/tools")))
        .or_else(|| Some(folder("HOME")?.join(".cache/carrick/tools")))
        .context("no place for the tools: set CARRICK_TOOLS_DIR")
}

/// Waits for whoever else builds the same.
fn lock(path: &Path, name: &str, out: &mut impl Write) -> Result<File> {
    let file = File::create(path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            writeln!(out, "{name}: another process builds it, waiting")?;
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    Ok(file)
}

fn check_go() -> Result<()> {
    let (major, minor) = GO;
    let output = Command::new("go").arg("version").env("GOTOOLCHAIN", "local").output();
    let Ok(output) = output else {
        bail!(
            "the tools are built with Go, and there is none: install Go {major}.{minor} or newer"
        );
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if go_version(&text).is_none_or(|version| version < GO) {
        bail!(
            "the tools need Go {major}.{minor} or newer, and this is {:?}: install it",
            text.trim()
        );
    }
    Ok(())
}

/// The number in e.g. `go version go1.26.8 linux/amd64`.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().find_map(|word| {
        word.strip_prefix("go").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Tool; 6] = [ETCD, NATS_SERVER, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, HELM, NATS];

    #[test]
    fn versions_are_those_of_the_modules() {
        for tool in ALL {
            let required = tool.module.go_mod.lines().any(|line| {
                let mut words = line.split_whitespace().skip_while(|word| *word == "require");
                let module = words.next().unwrap_or_default();
                tool.package.starts_with(module)
                    && words.next() == Some(&format!("v{}", tool.version))
            });
            assert!(required, "{} {}", tool.name, tool.version);
        }
    }

    #[test]
    fn every_tool_has_a_folder_of_its_own() {
        let cache = Path::new("cache");
        let mut folders: Vec<_> = ALL.map(|tool| tool.binary(cache)).to_vec();
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), ALL.len());
    }

    #[test]
    fn reads_the_version_of_go() {
        for (text, expected) in [
            ("go version go1.26.8 linux/amd64", Some((1, 26))),
            ("go version go1.27rc1 linux/amd64", Some((1, 27))),
            ("go version go2.0 linux/amd64", Some((2, 0))),
            ("go version devel linux/amd64", None),
            ("", None),
        ] {
            assert_eq!(go_version(text), expected, "{text}");
        }
    }
}
