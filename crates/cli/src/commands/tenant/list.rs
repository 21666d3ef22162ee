//! `carrick tenant list`.

use anyhow::Result;
use carrick_engine::settings::HostArgs;
use carrick_k8s::{
    Tenant,
    tenant::{ACCEPTED, CONNECTED, SYNCED},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use super::installed_tenants;
use crate::{
    connect,
    output::say,
    table::{Form, Listed, age, list},
};

/// How to show them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  carrick tenant list\n  carrick tenant list -o wide\n\n\
                        Exit codes: 0 shown, 1 failed, 2 wrong use.")]
pub(crate) struct Args {
    /// How to show them; wide adds the reasons
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[clap(flatten)]
    host: HostArgs,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let host = connect::host(&args.host).await?;
    let tenants = installed_tenants(&host).await?;
    if tenants.is_empty() {
        eprintln!("there are no tenants: add one with `carrick tenant add`");
    }
    say(&list(&tenants, args.output, Timestamp::now())?)
}

impl Listed for Tenant {
    const HEAD: &[&str] = &[
        "NAME",
        "CLUSTER",
        "CONNECTED",
        "ACCEPTED",
        "SYNCED",
        "BINDER",
        "CLAIMS",
        "AGE",
        "REASON",
    ];

    fn name(&self) -> String {
        self.name_any()
    }

    fn json(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let find = |type_: &str| status.conditions.iter().find(|found| found.type_ == type_);
        let word = |type_: &str| match find(type_) {
            Some(found) if found.status == "True" => "True".to_owned(),
            Some(found) => format!("{} ({})", found.status, found.reason),
            None => String::new(),
        };
        // Seen also before the watcher has said it, or without one.
        let synced = if self.spec.paused { "paused".to_owned() } else { word(SYNCED) };
        let wrong = [CONNECTED, ACCEPTED, SYNCED].into_iter().filter_map(find);
        let wrong = wrong.filter(|found| found.status != "True");
        let claims = status.claims.iter().map(|(state, count)| format!("{count} {state}"));
        vec![
            self.name_any(),
            self.cluster(),
            word(CONNECTED),
            word(ACCEPTED),
            synced,
            status.binder.map(|binder| format!("{binder:?}")).unwrap_or_default(),
            claims.collect::<Vec<_>>().join(", "),
            self.creation_timestamp().map(|created| age(created.0, now)).unwrap_or_default(),
            wrong.map(|found| found.message.clone()).collect::<Vec<_>>().join("; "),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tenant_stands_in_a_line_with_the_reason_if_it_is_not_connected() {
        let mut tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "carrick.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "acme", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"kubeconfig": {"secretRef": {"namespace": "n", "name": "s"}}},
            "status": {"claims": {"Bound": 3}, "conditions": [{
                "type": "Connected", "status": "False", "reason": "Unauthorized",
                "message": "the token is refused", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let now = Timestamp::from_second(9).unwrap();
        assert_eq!(
            list(&[tenant.clone()], Form::Wide, now).unwrap(),
            "NAME  CLUSTER  CONNECTED             ACCEPTED  SYNCED  BINDER  CLAIMS   AGE  REASON\n\
             acme  acme     False (Unauthorized)  -         -       -       3 Bound  9s   the token \
             is refused"
        );
        tenant.spec.paused = true;
        let shown = list(&[tenant], Form::Table, now).unwrap();
        assert!(shown.contains("-         paused  -"), "{shown}");
    }
}
