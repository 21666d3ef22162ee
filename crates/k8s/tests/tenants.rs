//! Tenants, their status, their pool of clients, and the sync target.

mod common;

use anyhow::{Context as _, Result};
use carrick_core::{SyncTarget, names::Domain};
use carrick_k8s::{
    Class, Client, Error, Pool, PoolOptions, Tenant, TenantEvent, TenantStatus, crd, identity,
    status::{patch_status, set_condition},
    target::{self, TargetSettings},
    tenant::ACCEPTED,
};
use carrick_testbed::{Stop, eventually};
use common::{CAP, create, options, plane, quick};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::timeout;

fn tenant(name: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "carrick.dev/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"kubeconfig": {"secretRef": {"namespace": "default", "name": secret}}},
    })
}

fn secret(name: &str, kubeconfig: &str) -> Value {
    let data = ByteString(kubeconfig.as_bytes().to_vec());
    json!({"metadata": {"name": name}, "data": {"kubeconfig": data}})
}

async fn accept(client: &Client, tenant: &Tenant, identity: &str) -> Result<Option<Tenant>, Error> {
    let mut status = tenant.status.clone().unwrap_or_default();
    status.identity = Some(identity.to_owned());
    let when = (tenant.metadata.generation, Timestamp::now());
    set_condition(&mut status, ACCEPTED, Some(true), ("Accepted", ""), when);
    patch_status(client, tenant, &status).await
}

#[tokio::test]
async fn a_status_is_written_once_and_the_cluster_stays() -> Result<()> {
    let (_testbed, host, client) = plane("tenants-status").await?;
    crd::apply_crd(&client, CAP).await?;
    let api: Api<Tenant> = Api::all(client.kube().clone());
    let made = create(&api, tenant("acme", "acme")).await?;
    assert_eq!(made.spec.select.namespaces.exclude, ["kube-*"], "a default of the schema");
    assert!(patch_status(&client, &made, &TenantStatus::default()).await?.is_none());

    let accepted = accept(&client, &made, "id").await?.context("it was news")?;
    assert!(accepted.is(ACCEPTED));
    assert!(accept(&client, &accepted, "id").await?.is_none(), "nothing new");
    let stale = accept(&client, &made, "other").await.unwrap_err();
    assert_eq!(stale.class(), Class::Conflict, "{stale}");
    let writes = host.audit_writes()?;
    let statuses = writes.iter().filter(|write| write.resource == "tenants" && write.code == 200);
    assert_eq!(statuses.count(), 1);

    let moved = json!({"spec": {"cluster": "elsewhere"}});
    let answer = api.patch("acme", &PatchParams::default(), &Patch::Merge(moved)).await;
    assert!(answer.unwrap_err().to_string().contains("cluster can't be changed"));
    Ok(())
}

fn pool(client: &Client) -> Pool {
    let target = SyncTarget { cluster: "root".into(), name: "carrick".into(), uid: "u".into() };
    let domain = Domain::KcpDev;
    let options = PoolOptions { target, domain, clients: Some(options()), watch: quick() };
    Pool::new(client.clone(), options)
}

#[tokio::test]
async fn the_pool_follows_tenants_and_their_secrets() -> Result<()> {
    let (_testbed, host, client) = plane("tenants-pool").await?;
    crd::apply_crd(&client, CAP).await?;
    let tenants: Api<Tenant> = Api::all(client.kube().clone());
    let secrets: Api<Secret> = Api::namespaced(client.kube().clone(), "default");
    let first = create(&tenants, tenant("acme", "acme")).await?;
    create(&secrets, secret("acme", &host.kubeconfig())).await?;

    let pool = pool(&client);
    let mut events = pool.subscribe();
    let test = async {
        timeout(CAP, pool.ready()).await.context("the pool does not get ready")?;
        let acme = pool.get("acme").context("it was there at the start")?;
        assert!(!acme.accepted && acme.problem.is_none());
        let id = identity(acme.client.as_ref().context("it has credentials")?).await?;
        assert_eq!(acme.verify().await.unwrap_err().problem().unwrap().reason, "IdentityChanged");
        accept(&client, &first, &id).await?;
        let accepted = changed(&pool, "acme", |acme| acme.accepted).await?;
        assert_eq!(accepted.connection, acme.connection, "the same client");
        accepted.verify().await?;

        secret_changes(&pool, &secrets).await?;

        bad_tenants(&pool, &tenants, &secrets).await?;

        host.stop_api_server(Stop::Kill).await?;
        host.start_api_server().await?;
        tenants.delete("acme", &DeleteParams::default()).await?;
        eventually("the Tenant to go", CAP, async || Ok(pool.get("acme").is_none().then_some(())))
            .await?;
        assert_eq!(pool.list().len(), 1);
        Ok::<(), anyhow::Error>(())
    };
    tokio::select! {
        result = test => result?,
        () = pool.run() => unreachable!("it never ends"),
    }
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        told.push(event);
    }
    let changes =
        told.iter().filter(|event| **event == TenantEvent::Changed("acme".into())).count();
    assert_eq!(changes, 5, "new, accepted, no key, no Secret, Secret again: {told:?}");
    assert_eq!(told.last(), Some(&TenantEvent::Removed("acme".into())));
    Ok(())
}

/// A Tenant with all that may be wrong with one.
async fn bad_tenants(pool: &Pool, tenants: &Api<Tenant>, secrets: &Api<Secret>) -> Result<()> {
    create(tenants, tenant("bare", "none")).await?;
    let bare = changed(pool, "bare", |_| true).await?;
    assert!(bare.problem.as_ref().is_some_and(|problem| problem.reason == "SecretMissing"));
    create(secrets, secret("none", "users: [")).await?;
    changed(pool, "bare", |bare| {
        bare.problem.as_ref().is_some_and(|problem| problem.reason == "KubeconfigInvalid")
    })
    .await?;
    let wrong = json!({"spec": {"storageClasses": {"default": "unlisted"}}});
    tenants.patch("bare", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    let wrong = changed(pool, "bare", |bare| !bare.invalid.is_empty()).await?;
    assert!(wrong.policy.tenant.paused && !wrong.accepted);
    Ok(())
}

/// Takes the kubeconfig of `acme` away in two ways, and gives it back.
async fn secret_changes(pool: &Pool, secrets: &Api<Secret>) -> Result<()> {
    let before = secrets.get("acme").await?;
    let text = before.data.clone().context("it has data")?["kubeconfig"].clone();
    let other = json!({"data": {"kubeconfig": null, "other": text}});
    secrets.patch("acme", &PatchParams::default(), &Patch::Merge(other)).await?;
    let reason = |acme: &carrick_k8s::TenantHandle, reason: &str| {
        acme.client.is_none() && acme.problem.as_ref().is_some_and(|p| p.reason == reason)
    };
    changed(pool, "acme", |acme| reason(acme, "KeyMissing")).await?;
    secrets.delete("acme", &DeleteParams::default()).await?;
    changed(pool, "acme", |acme| reason(acme, "SecretMissing")).await?;
    let text = String::from_utf8(text.0)?;
    create(secrets, secret("acme", &text)).await?;
    let again = changed(pool, "acme", |acme| acme.client.is_some()).await?;
    assert!(again.connection > 1, "another client");
    again.verify().await?;
    Ok(())
}

async fn changed(
    pool: &Pool,
    name: &str,
    mut as_wanted: impl FnMut(&carrick_k8s::TenantHandle) -> bool,
) -> Result<std::sync::Arc<carrick_k8s::TenantHandle>> {
    eventually(&format!("{name} to change"), CAP, async || {
        Ok(pool.get(name).filter(|handle| as_wanted(handle)))
    })
    .await
}

#[tokio::test]
async fn the_sync_target_is_fixed_once() -> Result<()> {
    let (_testbed, _host, client) = plane("tenants-target").await?;
    let settings = TargetSettings {
        namespace: "default".into(),
        cluster: "root".into(),
        name: "carrick".into(),
        domain: Domain::KcpDev,
    };
    assert_eq!(target::read(&client, &settings).await?, None);
    let (waited, fixed) = tokio::join!(
        timeout(CAP, target::wait(&client, &settings)),
        target::ensure(&client, &settings)
    );
    let fixed = fixed?;
    assert_eq!(waited??, fixed);
    assert_eq!(fixed.uid, identity(&client).await?);
    assert_eq!(target::ensure(&client, &settings).await?, fixed);
    let other = TargetSettings { name: "other".into(), ..settings.clone() };
    let error = target::ensure(&client, &other).await.unwrap_err();
    assert_eq!(error.class(), Class::Stop);
    assert!(error.to_string().contains("\"carrick\"") && error.to_string().contains("\"other\""));
    let error = target::wait(&client, &other).await.unwrap_err();
    assert_eq!(error.class(), Class::Stop);
    Ok(())
}
