//! What was made so far, to be taken back if a later step fails.

use std::time::Duration;

use anyhow::Result;
use carrick_k8s::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::super::{all_tenants, thing::Thing};

/// How long a server may take until it lists what was just defined.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

/// What was made, or may have been: a call that was not answered counts.
#[derive(Default)]
pub(super) struct Undo {
    made: Vec<(Thing, Option<String>)>,
    /// The definition of Tenants, which other Tenants may need by then.
    definition: Option<Thing>,
}

impl Undo {
    /// Notes what is not there and is about to be made.
    pub(super) fn note(&mut self, thing: Thing) {
        self.made.push((thing, None));
    }

    /// Notes the definition of Tenants, which is about to be made.
    pub(super) fn note_definition(&mut self, thing: Thing) {
        self.definition = Some(thing);
    }

    /// Makes it, and notes it unless the server says that it did not.
    pub(super) async fn create(&mut self, thing: Thing, rest: &Value) -> Result<(), kube::Error> {
        self.note(thing.clone());
        match thing.create(rest).await {
            Ok(uid) => {
                if let Some(noted) = self.made.last_mut() {
                    noted.1 = uid;
                }
                Ok(())
            }
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if (400..500).contains(&status.code)) {
                    self.made.pop();
                }
                Err(error)
            }
        }
    }

    /// Takes all of it back, the last first; what could not be, and why.
    pub(super) async fn take_back(self, host: &Client) -> Vec<String> {
        let mut left = Vec::new();
        for (thing, uid) in self.made.iter().rev() {
            if let Err(error) = thing.delete(uid.as_deref()).await {
                left.push(format!("{thing}: {error}"));
            }
        }
        if let Some(definition) = &self.definition
            && let Err(error) = remove_unused(definition, host).await
        {
            left.push(format!("{definition}: {error:#}"));
        }
        left
    }
}

/// Removes the definition, unless it has been used for Tenants since.
async fn remove_unused(definition: &Thing, host: &Client) -> Result<()> {
    let deadline = Instant::now() + SERVED_WITHIN;
    let tenants = loop {
        match all_tenants(host).await {
            // Just after it was defined, a server does not answer at once.
            Err(_) if Instant::now() < deadline => sleep(POLL).await,
            answer => break answer?,
        }
    };
    if tenants.unwrap_or_default().is_empty() {
        definition.delete(None).await?;
    }
    Ok(())
}
