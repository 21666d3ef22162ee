//! Waits until Carrick says how a new tenant stands.

use std::time::Duration;

use anyhow::{Result, bail};
use carrick_k8s::{
    Client, Error, Tenant,
    tenant::{ACCEPTED, CONNECTED},
};
use tokio::time::{Instant, sleep};

use super::super::tenants;
use crate::output::say;

const POLL: Duration = Duration::from_millis(200);

/// How a Tenant stands.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Connected and accepted.
    Good,
    /// It will not be accepted.
    Refused(String),
    /// Not good, but that may change.
    Bad(String),
    /// Nothing has reported on it.
    Unknown,
}

/// Waits for a tenant that was added; an error if it is known not to be good at the end.
pub(super) async fn wait(host: &Client, name: &str, limit: Duration) -> Result<()> {
    if limit.is_zero() {
        return Ok(());
    }
    let deadline = Instant::now() + limit;
    let mut last = Standing::Unknown;
    while Instant::now() < deadline {
        last = match tenants(host).get(name).await {
            Ok(tenant) => standing(&tenant),
            Err(error) => Standing::Bad(Error::of(format!("Tenant {name}"), &error).to_string()),
        };
        if matches!(last, Standing::Good | Standing::Refused(_)) {
            break;
        }
        tokio::select! {
            () = sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => bail!(
                "interrupted: tenant {name} was added, `carrick tenant list` shows how it stands"
            ),
        }
    }
    match last {
        Standing::Good => say("connected and accepted"),
        Standing::Refused(said) => bail!("tenant {name} was added, but is refused: {said}"),
        Standing::Bad(said) => bail!("tenant {name} was added, but after {limit:?}: {said}"),
        Standing::Unknown => {
            say(&format!("nothing has reported on it within {limit:?}: does the watcher run?"))
        }
    }
}

fn standing(tenant: &Tenant) -> Standing {
    let conditions = tenant.status.iter().flat_map(|status| &status.conditions);
    let conditions = conditions.filter(|c| [ACCEPTED, CONNECTED].contains(&c.type_.as_str()));
    let (good, mut wrong): (Vec<_>, Vec<_>) = conditions.partition(|c| c.status == "True");
    // What is known to be false says more than what is not known.
    wrong.sort_by_key(|c| (c.status != "False", c.type_ != ACCEPTED));
    match (wrong.first(), good.len()) {
        (Some(c), _) => {
            let word = c.status.to_lowercase();
            let said = format!("{} is {word}, {}: {}", c.type_, c.reason, c.message);
            let refused = c.type_ == ACCEPTED && c.status == "False";
            if refused { Standing::Refused(said) } else { Standing::Bad(said) }
        }
        (None, 0) => Standing::Unknown,
        (None, 1) => {
            Standing::Bad("it is not yet said to be both accepted and connected".to_owned())
        }
        (None, _) => Standing::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(conditions: &[(&str, &str)]) -> Standing {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({
                    "type": type_, "status": status, "reason": "Why", "message": "so",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                })
            })
            .collect();
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "carrick.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "acme"},
            "spec": {"kubeconfig": {"secretRef": {"namespace": "n", "name": "s"}}},
            "status": {"conditions": conditions},
        }))
        .unwrap();
        standing(&tenant)
    }

    #[test]
    fn only_what_is_accepted_and_connected_is_good() {
        let bad = |text: &str| Standing::Bad(text.to_owned());
        let not_yet = "it is not yet said to be both accepted and connected";
        let refused = Standing::Refused("Accepted is false, Why: so".to_owned());
        for (conditions, expected) in [
            (&[][..], Standing::Unknown),
            (&[("Synced", "False")], Standing::Unknown),
            (&[("Accepted", "True"), ("Connected", "True"), ("Synced", "False")], Standing::Good),
            (&[("Accepted", "True"), ("Synced", "False")], bad(not_yet)),
            (
                &[("Accepted", "Unknown"), ("Connected", "False")],
                bad("Connected is false, Why: so"),
            ),
            (&[("Accepted", "Unknown")], bad("Accepted is unknown, Why: so")),
            (&[("Connected", "True"), ("Accepted", "False")], refused),
        ] {
            assert_eq!(with(conditions), expected, "{conditions:?}");
        }
    }
}
