//! Reading all that is known of a claim at once.

use anyhow::Result;
use carrick_bus::{Error, Family};
use carrick_core::{ClaimKey, Facet, FactSubject, Scope};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use crate::support::{TARGET, claim, key, meta, one, raw, subject};

fn scoped(scope: Scope, facet: Facet) -> FactSubject {
    FactSubject { target: TARGET.to_owned(), scope, facet }
}

fn namespace() -> Scope {
    Scope::Namespace { tenant: "acme".into(), namespace: "team-a".into() }
}

fn tenant() -> Scope {
    Scope::Tenant { tenant: "acme".into() }
}

#[tokio::test]
async fn a_claim_is_read_with_its_namespace_and_the_classes() -> Result<()> {
    let server = one("bus-claim").await?;
    let bus = &server.bus;
    let named = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "1"}});
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "carrick.dev/host"});
    let volume = || Facet::HostVolume("pvc-1.x".into());
    for (subject, object) in [
        (subject("data", Facet::TenantClaim), claim("data", 1)),
        (subject("data", Facet::HostClaim), claim("data", 1)),
        (subject("data", volume()), named("pvc-1.x")),
        (subject("data-2", Facet::TenantClaim), claim("data-2", 1)),
        (scoped(namespace(), Facet::HostNamespace), named("host-ns")),
        (scoped(tenant(), Facet::TenantClass("fast".into())), class.clone()),
        (scoped(tenant(), Facet::HostClass("fast".into())), class),
    ] {
        bus.publish_fact(&subject, &object, &meta(1, false), 0).await?;
    }
    let view = bus.claim_facts(&key("data"), true, 7).await?;
    let facts = view.facts;
    assert!(view.poison.is_empty());
    assert!(facts.tenant_claim.is_some() && facts.host_claim.is_some());
    assert!(facts.host_namespace.is_some() && facts.tenant_namespace.is_none());
    assert!(facts.host_volumes.contains_key("pvc-1.x"));
    assert!(facts.tenant_classes.contains_key("fast"));
    let without = bus.claim_facts(&key("data"), false, 0).await?;
    assert!(without.facts.tenant_classes.is_empty());

    let (classes, poison) = bus.tenant_facts("acme", 0).await?;
    assert!(poison.is_empty());
    assert_eq!((classes.tenant_classes.len(), classes.host_classes.len()), (1, 1));

    let both = vec![key("data"), key("data-2")];
    assert_eq!(bus.claims_in(None).await?, both);
    assert_eq!(bus.claims_in(Some(&tenant())).await?, both);
    assert_eq!(bus.claims_in(Some(&namespace())).await?, both);
    let one = Scope::Claim(key("data"));
    assert_eq!(bus.claims_in(Some(&one)).await?, [key("data")]);
    let elsewhere = Scope::Tenant { tenant: "other".into() };
    assert!(bus.claims_in(Some(&elsewhere)).await?.is_empty());
    assert!(bus.scopes_in(None).await?.contains(&tenant()));
    Ok(())
}

#[tokio::test]
async fn nothing_known_is_no_error_and_a_future_sequence_is() -> Result<()> {
    let server = one("bus-nothing").await?;
    let bus = &server.bus;
    let nothing = bus.claim_facts(&key("data"), true, 0).await?;
    assert_eq!(nothing.sequence, 0);
    // The leader agrees that there is nothing, so no replica is behind.
    bus.claim_facts(&key("data"), true, 5).await?;
    let subject = subject("data", Facet::TenantClaim);
    bus.publish_fact(&subject, &claim("data", 1), &meta(1, false), 0).await?;
    bus.claim_facts(&key("data"), true, 1).await?;
    let future = bus.claim_facts(&key("data"), true, 5).await;
    assert!(matches!(future, Err(Error::Timeout { .. })));
    Ok(())
}

#[tokio::test]
async fn what_is_no_object_spoils_nothing_else() -> Result<()> {
    let server = one("bus-poison").await?;
    let bus = &server.bus;
    let host = subject("data", Facet::HostClaim);
    bus.publish_fact(&host, &claim("data", 1), &meta(1, false), 0).await?;
    let client = raw(&server.nats).await?;
    let jetstream = async_nats::jetstream::new(client);
    let bad = [
        (subject("data", Facet::TenantClaim).to_string(), "no { json"),
        (subject("data", Facet::HostVolume("v".into())).to_string(), "[1]"),
        (bus.filter(Family::Facts, "acme.team-a.data.nonsense"), "{}"),
    ];
    for (subject, body) in bad {
        jetstream.publish(subject, body.into()).await?.await?;
    }
    let view = bus.claim_facts(&key("data"), false, 0).await?;
    assert!(view.facts.host_claim.is_some() && view.facts.tenant_claim.is_none());
    let mut errors: Vec<String> = view
        .poison
        .iter()
        .map(|poison| format!("{}: {}", poison.subject.rsplit('.').next().unwrap(), poison.error))
        .collect();
    errors.sort();
    assert!(errors[0].starts_with("nonsense: its subject"), "{errors:?}");
    assert!(errors[1].starts_with("tenant-claim: its body"), "{errors:?}");
    assert!(errors[2].starts_with("v: the host-volume"), "{errors:?}");
    assert_eq!(errors.len(), 3);
    // A real fact takes the place of what was none.
    let tenant = subject("data", Facet::TenantClaim);
    bus.publish_fact(&tenant, &claim("data", 1), &meta(1, false), 0).await?;
    let view = bus.claim_facts(&key("data"), false, 0).await?;
    assert!(view.facts.tenant_claim.is_some());
    Ok(())
}

#[tokio::test]
async fn more_than_the_server_answers_at_once_is_read_whole() -> Result<()> {
    const COUNT: usize = 2100;
    let server = one("bus-many").await?;
    let bus = &server.bus;
    // The largest bodies, so that the server would cut the answer off: 200 MB are 64 MB three times.
    let padding = "x".repeat(100_000);
    let padding = &padding;
    stream::iter(0..COUNT)
        .map(|n| async move {
            let subject = subject(&format!("data-{n}"), Facet::TenantClaim);
            let object = json!({"metadata": {"name": n.to_string()}, "padding": padding});
            bus.publish_fact(&subject, &object, &meta(1, false), 0).await
        })
        .buffer_unordered(64)
        .try_collect::<Vec<_>>()
        .await?;
    let filter = bus.filter(Family::Facts, "acme.>");
    let read = bus.read(&[filter], u64::try_from(COUNT)?).await?;
    assert_eq!((read.facts.len(), read.poison.len()), (COUNT, 0));
    // Below the limit of subjects, above that of bytes.
    let part = bus.filter(Family::Facts, "acme.team-a.*.tenant-claim");
    assert_eq!(bus.read(&[part], 0).await?.facts.len(), COUNT);
    let claims: Vec<ClaimKey> = bus.claims_in(None).await?;
    assert_eq!(claims.len(), COUNT);
    Ok(())
}
