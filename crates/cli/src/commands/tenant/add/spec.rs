//! The Tenant that the options say. Pure.

use anyhow::Result;
use carrick_k8s::{
    Tenant, TenantSpec,
    tenant::{
        AllowedClass, Classes, KubeconfigSource, NamespacePatterns, SecretKey, Select, SelectMode,
        VolumeBinder, rules,
    },
};
use serde_json::json;

use super::{super::secret_name, Args, Binder};
use crate::connect::WrongSettings;

/// The key of the kubeconfig in its Secret.
pub(super) const KEY: &str = "kubeconfig";

/// The name of a Tenant, and with a prefix that of its Secret: a DNS-1123 subdomain.
pub(super) fn tenant_name(name: &str) -> Result<String, String> {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inside)
    };
    if name.len() <= 200 && name.split('.').all(is_label) {
        return Ok(name.to_owned());
    }
    Err("it is no name for a tenant: use up to 200 of a-z, 0-9, - and ., as acme or acme.team-a"
        .to_owned())
}

/// A class as `NAME` or `NAME=HOST`.
pub(super) fn class(text: &str) -> Result<AllowedClass, String> {
    match text.split_once('=') {
        Some((_, "")) => Err("it names no class of the host: write NAME or NAME=HOST".to_owned()),
        Some((tenant, host)) => {
            Ok(AllowedClass { tenant: tenant.to_owned(), host: Some(host.to_owned()) })
        }
        None => Ok(AllowedClass { tenant: text.to_owned(), host: None }),
    }
}

/// The Tenant, if it is a valid one.
pub(super) fn tenant(args: &Args, system_namespace: &str) -> Result<Tenant> {
    let secret_ref = SecretKey {
        namespace: system_namespace.to_owned(),
        name: secret_name(&args.name),
        key: KEY.to_owned(),
    };
    // Everything that is not said has the default of the definition.
    let mut spec: TenantSpec =
        serde_json::from_value(json!({"kubeconfig": KubeconfigSource { secret_ref }}))?;
    spec.cluster.clone_from(&args.cluster);
    spec.select = Select {
        mode: if args.labeled { SelectMode::Labeled } else { SelectMode::All },
        namespaces: NamespacePatterns {
            include: args.namespaces.clone(),
            exclude: args.exclude.clone(),
        },
        label_selector: None,
    };
    spec.storage_classes = Classes {
        allow_all: args.all_classes || args.classes.is_empty(),
        allowed: args.classes.clone(),
        default: args.default_class.clone(),
    };
    default_class(&spec.storage_classes)?;
    spec.volume_binder = match args.volume_binder {
        Binder::Auto => VolumeBinder::Auto,
        Binder::Tenant => VolumeBinder::Tenant,
        Binder::Carrick => VolumeBinder::Carrick,
    };
    let tenant = Tenant::new(&args.name, spec);
    rules(&tenant).map_err(WrongSettings)?;
    Ok(tenant)
}

/// Whether the class for claims that name none is one that the tenant may use.
fn default_class(classes: &Classes) -> Result<(), WrongSettings> {
    let Classes { allow_all, allowed, default } = classes;
    let names: Vec<_> = allowed.iter().map(|class| class.tenant.as_str()).collect();
    match default {
        Some(class) if !allow_all && !names.contains(&class.as_str()) => {
            let names = names.join(", ");
            Err(WrongSettings(vec![format!(
                "--default-class is {class:?}: that is none of the classes given by --class ({names})"
            )]))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use serde_json::Value;

    #[derive(clap::Parser)]
    struct Cli {
        #[clap(flatten)]
        args: Args,
    }

    fn made(more: &[&str]) -> Result<Value> {
        let line = ["add", "acme", "--kubeconfig", "f"];
        let cli = Cli::try_parse_from(line.iter().chain(more))?;
        Ok(serde_json::to_value(tenant(&cli.args, "carrick-system")?.spec)?)
    }

    #[test]
    fn a_tenant_has_a_name_that_kubernetes_takes() {
        for name in ["acme", "acme.team-a", "7", &"a".repeat(200)] {
            assert!(tenant_name(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a/b", &"a".repeat(201)] {
            assert!(tenant_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_not_said_is_the_default_and_every_class_is_allowed() {
        let spec = made(&[]).unwrap();
        let secret = json!({
            "namespace": "carrick-system", "name": "carrick-tenant-acme", "key": "kubeconfig",
        });
        assert_eq!(spec["kubeconfig"]["secretRef"], secret);
        assert_eq!(spec["storageClasses"], json!({"allowAll": true, "allowed": []}));
        assert_eq!(spec["select"]["mode"], "All");
        assert_eq!(spec["select"]["namespaces"], json!({"include": [], "exclude": ["kube-*"]}));
        assert_eq!(spec["volumeBinder"], "Auto");
        assert_eq!(spec["onRemoval"], "Retain");
        assert_eq!(spec["weight"], 1);
        assert_eq!(spec.get("cluster"), None);
    }

    #[test]
    fn options_become_the_spec() {
        let line = "--class fast=ssd --class std --default-class std --labeled --namespaces team-* \
                    --exclude team-x --volume-binder Tenant --cluster root:acme";
        let spec = made(&line.split(' ').collect::<Vec<_>>()).unwrap();
        let allowed = json!([{"tenant": "fast", "host": "ssd"}, {"tenant": "std"}]);
        let classes = json!({"allowAll": false, "allowed": allowed, "default": "std"});
        assert_eq!(spec["storageClasses"], classes);
        assert_eq!(spec["select"]["mode"], "Labeled");
        let namespaces = json!({"include": ["team-*"], "exclude": ["team-x"]});
        assert_eq!(spec["select"]["namespaces"], namespaces);
        assert_eq!(spec["volumeBinder"], "Tenant");
        assert_eq!(spec["cluster"], "root:acme");
        let spec = made(&["--class", "fast", "--all-classes"]).unwrap();
        assert_eq!(spec["storageClasses"]["allowAll"], true);
    }

    #[test]
    fn what_does_not_fit_together_is_wrong_use() {
        let error = made(&["--class", "fast", "--default-class", "slow"]).unwrap_err();
        let problems = &error.downcast_ref::<WrongSettings>().unwrap().0;
        assert!(
            problems[0].contains("none of the classes given by --class (fast)"),
            "{problems:?}"
        );
        // The name in the tenant counts. Where all are allowed, the host is asked.
        made(&["--class", "fast=ssd", "--default-class", "ssd"]).unwrap_err();
        made(&["--class", "fast", "--all-classes", "--default-class", "slow"]).unwrap();
    }
}
