//! What is known of one claim or one tenant, as the decisions take it.

use std::collections::BTreeSet;

use carrick_core::{
    ClaimFacts, ClaimKey, Facet, Fact, FactSubject, Scope, TenantFacts,
    decide::{namespace::NamespaceFacts, ownership::has_finalizer},
    fact::FactError,
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::{
    connect::Bus,
    error::Result,
    facts::FactMeta,
    read::{Poison, Raw, fact_subject},
    streams::Family,
};

type Json<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

/// All that is known of one claim, and what of it can't be read.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// What is known; the steps are not in it.
    pub facts: ClaimFacts,
    /// Messages that are no facts. Where there are some, the facts are not complete.
    pub poison: Vec<Poison>,
    /// The latest sequence among the facts; 0 if there are none.
    pub sequence: u64,
}

impl Bus {
    /// Everything known of a claim and its namespace, and of the tenant's classes if asked for, as
    /// of one moment that is not before the stream's sequence `not_before` (0 for any): pass the
    /// sequence of the message that made you look, for any replica may answer.
    pub async fn claim_facts(
        &self,
        key: &ClaimKey,
        with_classes: bool,
        not_before: u64,
    ) -> Result<ClaimView> {
        let claim = Scope::Claim(key.clone());
        let namespace =
            Scope::Namespace { tenant: key.tenant.clone(), namespace: key.namespace.clone() };
        let mut filters = vec![self.facts_of(&claim, ">"), self.facts_of(&namespace, ">")];
        if with_classes {
            let tenant = tenant_scope(&key.tenant);
            filters.push(self.facts_of(&tenant, "tenant-class.*"));
        }
        let read = self.last_messages(Family::Facts, &filters, not_before).await?;
        let sequence = read.iter().map(|raw| raw.sequence).max().unwrap_or(0);
        let mut facts = ClaimFacts::new(key.clone());
        let poison = take_in(&read, |facet, deleted, json| facts.insert(facet, deleted, json));
        Ok(ClaimView { facts, poison, sequence })
    }

    /// What is known of a tenant as a whole, see [`Bus::claim_facts`].
    pub async fn tenant_facts(
        &self,
        tenant: &str,
        not_before: u64,
    ) -> Result<(TenantFacts, Vec<Poison>)> {
        let filter = self.facts_of(&tenant_scope(tenant), ">");
        let read = self.last_messages(Family::Facts, &[filter], not_before).await?;
        let mut facts = TenantFacts::new(tenant);
        let poison = take_in(&read, |facet, deleted, json| facts.insert(facet, deleted, json));
        Ok((facts, poison))
    }

    /// What is known of a namespace and of the claims in it; those in the tenant count that have this
    /// finalizer.
    pub async fn namespace_facts(
        &self,
        tenant: &str,
        namespace: &str,
        finalizer: &str,
    ) -> Result<NamespaceFacts> {
        let scope = Scope::Namespace { tenant: tenant.to_owned(), namespace: namespace.to_owned() };
        let claims = |facet| {
            let tokens = scope.tokens();
            let claims = format!("{}.*.{facet}", tokens.trim_end_matches(".-"));
            self.filter(Family::Facts, &claims)
        };
        let filters =
            [self.facts_of(&scope, "host-namespace"), claims("host-claim"), claims("tenant-claim")];
        let mut facts = NamespaceFacts { namespace: namespace.to_owned(), ..Default::default() };
        for raw in self.last_messages(Family::Facts, &filters, 0).await? {
            let meta = FactMeta::read(Some(&raw.headers));
            match fact_subject(&raw).map(|subject| subject.facet) {
                Ok(Facet::HostNamespace) => {
                    // What can't be read is none of ours.
                    let object = serde_json::from_slice(&raw.payload).ok();
                    facts.host_namespace =
                        object.map(|object| Fact { object, deleted: meta.deleted });
                }
                Ok(Facet::HostClaim) if meta.deleted => {
                    facts.last_gone = facts.last_gone.max(Some(meta.observed));
                }
                Ok(Facet::TenantClaim) => {
                    let claim = serde_json::from_slice::<PersistentVolumeClaim>(&raw.payload);
                    let carried =
                        claim.is_ok_and(|claim| has_finalizer(&claim.metadata, finalizer));
                    facts.claims += usize::from(carried && !meta.deleted);
                }
                // What can't be read may well be a claim.
                _ => facts.claims += 1,
            }
        }
        Ok(facts)
    }

    /// The claims that anything is known of, even if it is only that they are gone: all, or those
    /// of a tenant or namespace.
    pub async fn claims_in(&self, scope: Option<&Scope>) -> Result<Vec<ClaimKey>> {
        let scopes = self.scopes_in(scope).await?;
        Ok(scopes
            .into_iter()
            .filter_map(|scope| match scope {
                Scope::Claim(key) => Some(key),
                Scope::Namespace { .. } | Scope::Tenant { .. } => None,
            })
            .collect())
    }

    /// The claims, namespaces and tenants that there are facts of: all, or what is in a scope, with
    /// itself.
    pub async fn scopes_in(&self, scope: Option<&Scope>) -> Result<BTreeSet<Scope>> {
        let filter = self.filter(Family::Facts, &within(scope));
        let subjects = self.subjects(Family::Facts, &[filter]).await?;
        let parsed = subjects.iter().filter_map(|text| FactSubject::parse(text));
        Ok(parsed.map(|subject| subject.scope).collect())
    }

    fn facts_of(&self, scope: &Scope, rest: &str) -> String {
        self.filter(Family::Facts, &format!("{}.{rest}", scope.tokens()))
    }
}

/// The wildcard for everything in a scope.
pub(crate) fn within(scope: Option<&Scope>) -> String {
    let Some(scope) = scope else {
        return ">".to_owned();
    };
    let tokens = scope.tokens();
    // `-` stands for no level, where all are meant.
    format!("{}.>", tokens.trim_end_matches(".-"))
}

fn tenant_scope(tenant: &str) -> Scope {
    Scope::Tenant { tenant: tenant.to_owned() }
}

/// Hands over each fact, not parsed yet; what is refused is poison.
fn take_in(
    read: &[Raw],
    mut insert: impl FnMut(&Facet, bool, &mut Json<'_>) -> Result<(), FactError>,
) -> Vec<Poison> {
    let mut take = |raw: &Raw| {
        let FactSubject { facet, .. } = fact_subject(raw)?;
        let deleted = FactMeta::read(Some(&raw.headers)).deleted;
        let mut json = serde_json::Deserializer::from_slice(&raw.payload);
        insert(&facet, deleted, &mut json).map_err(|error| raw.poison(error.to_string()))
    };
    read.iter().filter_map(|raw| take(raw).err()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_what_is_below_it() {
        let namespace = Scope::Namespace { tenant: "acme".into(), namespace: "team-a".into() };
        assert_eq!(within(None), ">");
        assert_eq!(within(Some(&tenant_scope("acme"))), "acme.>");
        assert_eq!(within(Some(&namespace)), "acme.team-a.>");
        let claim = Scope::Claim(ClaimKey::new("acme", "team-a", "data"));
        assert_eq!(within(Some(&claim)), "acme.team-a.data.>");
    }
}
