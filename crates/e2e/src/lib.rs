//! Carrick as its users run it, on the testbed: the services as processes, the CLI as a program,
//! and what can be seen from the outside on the API servers. For the tests of the whole and the
//! demo.

mod claims;
mod installation;
mod linked;
mod measure;
mod place;
mod recorder;
mod stage;
mod tenants;
mod wait;

pub use claims::{claim, make_claims, make_namespace, phase, until_bound};
pub use installation::{Installation, SERVICES, Said, program};
pub use linked::{Pair, check_pair};
pub use measure::{Measured, measure};
pub use place::{Place, check_stays, until_gone};
pub use recorder::{Recorder, Version};
pub use stage::{Binder, CLASS, HOST_PATH, Stage, numbered};
pub use tenants::{
    KUBECONFIG, make_tenant, put_secret, tenant_condition, tenants, until_condition,
};
pub use wait::{carrick_writes, until_no_writes, until_ok};
