//! Executes writes that somebody decided on, and reads single objects live.

use carrick_core::{Action, Kind, ObjectRef, Write};
use http::Request;
use json_patch::Patch as JsonPatch;
use kube::{
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions},
    core::request,
};
use serde_json::Value;

use crate::{
    client::Client,
    error::{Error, is_already_there, is_missing},
    problem::{ConnectionProblem, INVALID_ANSWER},
    resource::Resource,
};

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// Done; the object as it is now.
    Applied(Value),
    /// An object of that name was there already; the live one (of an Event: the one not made).
    Exists(Value),
    /// The object to patch is not there any more.
    Gone,
    /// Deleted: it is gone, now or already.
    Deleted,
}

/// Does one write, within the client's bound. Its preconditions are in it: one that does not hold
/// is an [`Error::Conflict`].
pub async fn execute(client: &Client, write: &Write) -> Result<Written, Error> {
    let Write { object, action, why: _ } = write;
    let api = request::Request::new(Resource::from(object).path());
    match action {
        Action::Create(body) => create(client, &api, object, body).await,
        Action::Patch(patch) => {
            let patch = json(patch);
            patched(client, object, api.patch(&object.name, &patch_params(client), &patch)).await
        }
        Action::PatchStatus(patch) => {
            let (patch, params) = (json(patch), patch_params(client));
            let request = api.patch_subresource("status", &object.name, &params, &patch);
            patched(client, object, request).await
        }
        Action::Delete { uid, version } => delete(client, &api, object, uid, version).await,
    }
}

/// The object as it is now. `None` only if the server plainly says that it is not there.
pub async fn get(client: &Client, object: &ObjectRef) -> Result<Option<Value>, Error> {
    let api = request::Request::new(Resource::from(object).path());
    match send(client, api.get(&object.name, &GetParams::default())).await {
        Ok(text) => parse(object, &text).map(Some),
        Err(error) if is_missing(&error, object.kind.plural(), &object.name) => Ok(None),
        Err(error) => Err(Error::of(object, &error)),
    }
}

async fn create(
    client: &Client,
    api: &request::Request,
    object: &ObjectRef,
    body: &Value,
) -> Result<Written, Error> {
    let params = PostParams {
        field_manager: Some(client.field_manager().to_owned()),
        ..PostParams::default()
    };
    match send(client, api.create(&params, body.to_string().into_bytes())).await {
        Ok(text) => parse(object, &text).map(Written::Applied),
        // An Event's name says what it tells: it has been told.
        Err(error) if is_already_there(&error) && object.kind == Kind::Event => {
            Ok(Written::Exists(body.clone()))
        }
        Err(error) if is_already_there(&error) => match get(client, object).await? {
            Some(live) => Ok(Written::Exists(live)),
            None => Err(Error::of(object, &error)),
        },
        Err(error) => Err(Error::of(object, &error)),
    }
}

async fn delete(
    client: &Client,
    api: &request::Request,
    object: &ObjectRef,
    uid: &str,
    version: &str,
) -> Result<Written, Error> {
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: Some(version.to_owned()),
    });
    match send(client, api.delete(&object.name, &params)).await {
        Ok(text) => {
            let answer = parse(object, &text)?;
            // With finalizers on it, it stays until they are off; else the answer is its last state.
            let stays = answer["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            let is_object = answer["metadata"]["uid"] == uid;
            Ok(if is_object && stays { Written::Applied(answer) } else { Written::Deleted })
        }
        Err(error) if is_missing(&error, object.kind.plural(), &object.name) => {
            Ok(Written::Deleted)
        }
        Err(error) => Err(Error::of(object, &error)),
    }
}

async fn patched(
    client: &Client,
    object: &ObjectRef,
    request: Result<Request<Vec<u8>>, request::Error>,
) -> Result<Written, Error> {
    match send(client, request).await {
        Ok(text) => parse(object, &text).map(Written::Applied),
        Err(error) if is_missing(&error, object.kind.plural(), &object.name) => Ok(Written::Gone),
        Err(error) => Err(Error::of(object, &error)),
    }
}

async fn send(
    client: &Client,
    request: Result<Request<Vec<u8>>, request::Error>,
) -> kube::Result<String> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.call(client.kube().request_text(request)).await
}

fn parse(object: &ObjectRef, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|_| {
        let problem = ConnectionProblem::new(INVALID_ANSWER, "the server's answer is not JSON");
        Error::unavailable(object, problem)
    })
}

fn json(patch: &JsonPatch) -> Patch<()> {
    Patch::Json(patch.clone())
}

fn patch_params(client: &Client) -> PatchParams {
    PatchParams { field_manager: Some(client.field_manager().to_owned()), ..PatchParams::default() }
}
