//! Tenants that can't be added: the reason is told, and nothing is changed anywhere.

use anyhow::{Context as _, Result, ensure};
use carrick_testbed::Testbed;

use crate::support::{Bench, run};

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_added_changes_nothing() -> Result<()> {
    Testbed::run("cli-refused", async |testbed| {
        let bench = Bench::start(testbed).await?;
        for (name, kubeconfig, words) in unusable(&bench)? {
            let path = bench.file(&format!("{name}.yaml"), &kubeconfig)?;
            let path = path.to_str().context("a path is text")?;
            let said = bench.carrick(&["tenant", "add", name, "--kubeconfig", path]).await?;
            said.expect(1, words)?;
        }
        let nowhere = bench.carrick(&["tenant", "add", "a", "--kubeconfig", "/nowhere"]).await?;
        nowhere.expect(1, &["kubeconfig /nowhere can't be read: No such file"])?;
        bench.add("Acme", &[]).await?.expect(2, &["no name for a tenant"])?;
        bench
            .add("acme", &["--context", "none"])
            .await?
            .expect(1, &["no context \"none\": name one"])?;
        let other = ["--class", "fast", "--default-class", "slow"];
        bench.add("acme", &other).await?.expect(2, &["given by --class (fast)"])?;
        let unknown = bench.add("acme", &["--default-class", "slow"]).await?;
        unknown.expect(1, &["--default-class slow", "no such storage class"])?;
        bench.host.create_storage_class("slow", "kubernetes.io/host-path").await?;
        let known = bench.add("acme", &["--default-class", "slow", "--dry-run"]).await?;
        known.expect(0, &["can be added"])?;

        let mut command = bench.program();
        command.args(["tenant", "add", "acme", "--kubeconfig", "x", "--host-kubeconfig", "/no"]);
        run(command).await?.expect(2, &["--host-kubeconfig", "CARRICK_KUBECONFIG", "readable"])?;

        ensure!(bench.writes()?.is_empty(), "written: {:?}", bench.writes()?);
        ensure!(bench.account().await?.is_empty());
        Ok(())
    })
    .await
}

type Unusable = (&'static str, String, &'static [&'static str]);

/// Kubeconfigs that can't be a tenant's, and what is said of them.
fn unusable(bench: &Bench<'_>) -> Result<Vec<Unusable>> {
    let (host, tenant) = (&bench.host, &bench.tenant);
    let right = tenant.kubeconfig();
    let authority = |kubeconfig: &str| {
        let line = kubeconfig.lines().find(|line| line.contains("certificate-authority-data"));
        line.map(str::to_owned).context("a kubeconfig has an authority")
    };
    let wrong_ca = right.replace(&authority(&right)?, &authority(&host.kubeconfig())?);
    let gone = right.replace(&tenant.url(), "https://127.0.0.1:1");
    Ok(vec![
        ("host", host.kubeconfig(), &["is the host itself"]),
        ("wrong-ca", wrong_ca, &["certificate-authority-data", "CertificateInvalid"]),
        (
            "wrong-token",
            tenant.kubeconfig_with_token("wrong"),
            &["does not know these credentials: check token", "Unauthorized"],
        ),
        ("unreachable", gone, &["does not answer", "https://127.0.0.1:1", "Unreachable"]),
        ("none", "no: kubeconfig".to_owned(), &["none.yaml has no current context"]),
        ("broken", "no: [".to_owned(), &["broken.yaml is not the YAML of a kubeconfig"]),
    ])
}
