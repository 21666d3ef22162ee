//! `carrick tenant list`.

use anyhow::Result;
use carrick_engine::settings::HostArgs;
use carrick_k8s::{
    Tenant,
    tenant::{ACCEPTED, CONNECTED},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::all_tenants;
use crate::{
    connect,
    output::say,
    table::{age, table},
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Table,
    Wide,
    Json,
    Name,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let host = connect::host(&args.host).await?;
    let tenants = all_tenants(&host).await?;
    if tenants.is_empty() {
        eprintln!("there are no tenants: add one with `carrick tenant add`");
    }
    say(&show(&tenants, args.output, Timestamp::now())?)
}

fn show(tenants: &[Tenant], form: Form, now: Timestamp) -> Result<String> {
    Ok(match form {
        Form::Name => tenants.iter().map(Tenant::name_any).collect::<Vec<_>>().join("\n"),
        Form::Json => serde_json::to_string_pretty(tenants)?,
        Form::Table | Form::Wide if tenants.is_empty() => String::new(),
        Form::Table | Form::Wide => {
            let mut head =
                vec!["NAME", "CLUSTER", "CONNECTED", "ACCEPTED", "BINDER", "CLAIMS", "AGE"];
            head.extend((form == Form::Wide).then_some("REASON"));
            table(&head, &tenants.iter().map(|t| row(t, form, now)).collect::<Vec<_>>())
        }
    })
}

fn row(tenant: &Tenant, form: Form, now: Timestamp) -> Vec<String> {
    let status = tenant.status.clone().unwrap_or_default();
    let find = |type_: &str| status.conditions.iter().find(|found| found.type_ == type_);
    let word = |type_: &str| match find(type_) {
        Some(found) if found.status == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", found.status, found.reason),
        None => String::new(),
    };
    let claims = status.claims.iter().map(|(state, count)| format!("{count} {state}"));
    let created = tenant.creation_timestamp();
    let mut row = vec![
        tenant.name_any(),
        tenant.cluster(),
        word(CONNECTED),
        word(ACCEPTED),
        status.binder.map(|binder| format!("{binder:?}")).unwrap_or_default(),
        claims.collect::<Vec<_>>().join(", "),
        created.map(|created| age(created.0, now)).unwrap_or_default(),
    ];
    if form == Form::Wide {
        let wrong = [CONNECTED, ACCEPTED].into_iter().filter_map(find);
        let wrong = wrong.filter(|found| found.status != "True");
        row.push(wrong.map(|found| found.message.clone()).collect::<Vec<_>>().join("; "));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tenant_stands_in_a_line_with_the_reason_if_it_is_not_connected() {
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "carrick.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "acme", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"kubeconfig": {"secretRef": {"namespace": "n", "name": "s"}}},
            "status": {"claims": {"Bound": 3}, "conditions": [{
                "type": "Connected", "status": "False", "reason": "Unauthorized",
                "message": "the token is refused", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let shown = show(&[tenant], Form::Wide, Timestamp::from_second(9).unwrap()).unwrap();
        assert_eq!(
            shown,
            "NAME  CLUSTER  CONNECTED             ACCEPTED  BINDER  CLAIMS   AGE  REASON\n\
             acme  acme     False (Unauthorized)  -         -       3 Bound  9s   the token is refused"
        );
    }
}
