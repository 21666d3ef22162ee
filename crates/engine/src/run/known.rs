//! What a look knows, and how it learns more while it goes on.

use carrick_core::{ClaimFacts, Facet, TenantFacts, fact::FactError, write::ObjectRef};
use serde_json::Value;

/// The facts of a claim or of a tenant, with what writes returned.
pub(super) trait Known {
    /// Takes in an object, unless a newer state of it is known.
    fn insert(&mut self, facet: &Facet, object: Value) -> Result<(), FactError>;

    /// What an API server said of an object just now.
    fn confirm(&mut self, facet: &Facet, object: Option<Value>) -> Result<(), FactError>;

    /// An object is gone.
    fn bury(&mut self, facet: &Facet);

    /// Something was written: what was confirmed may be over.
    fn wrote(&mut self);

    /// An object is gone, by a write of one's own.
    fn buried(&mut self, object: &ObjectRef) {
        if let Some(facet) = object.facet() {
            self.bury(&facet);
        }
    }

    /// A write returned an object.
    fn take_in(&mut self, object: &ObjectRef, value: &Value) {
        if let Some(facet) = object.facet()
            && let Err(error) = self.insert(&facet, value.clone())
        {
            tracing::warn!(%error, %object, "A written object is not readable");
        }
    }
}

impl Known for ClaimFacts {
    fn insert(&mut self, facet: &Facet, object: Value) -> Result<(), FactError> {
        Self::insert(self, facet, false, object)
    }

    fn confirm(&mut self, facet: &Facet, object: Option<Value>) -> Result<(), FactError> {
        Self::confirm(self, facet, object)
    }

    fn bury(&mut self, facet: &Facet) {
        Self::bury(self, facet);
    }

    fn wrote(&mut self) {
        self.confirmed.clear();
    }
}

impl Known for TenantFacts {
    fn insert(&mut self, facet: &Facet, object: Value) -> Result<(), FactError> {
        Self::insert(self, facet, false, object)
    }

    fn confirm(&mut self, facet: &Facet, object: Option<Value>) -> Result<(), FactError> {
        if let Some(object) = object {
            return Self::insert(self, facet, false, object);
        }
        Self::bury(self, facet);
        Ok(())
    }

    fn bury(&mut self, facet: &Facet) {
        Self::bury(self, facet);
    }

    fn wrote(&mut self) {}
}
