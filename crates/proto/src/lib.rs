//! The messages of `proto/carrick/v1`, with proto3 JSON through serde. Nothing but the generated
//! code: what it means is in `carrick-core`, how it travels in `carrick-bus`.

/// Version 1 of the messages.
pub mod v1 {
    #![allow(clippy::pedantic, reason = "generated code is not written to our lints")]
    include!(concat!(env!("OUT_DIR"), "/carrick.v1.rs"));
    include!(concat!(env!("OUT_DIR"), "/carrick.v1.serde.rs"));
}

#[cfg(test)]
mod tests {
    use super::v1::{Outcome, Step, StepKind};

    #[test]
    fn json_is_readable_and_tolerates_what_a_newer_sender_adds() {
        let step = Step {
            tenant: "acme".into(),
            step: StepKind::Upsync.into(),
            outcome: Outcome::Done.into(),
            duration: Some(pbjson_types::Duration { seconds: 0, nanos: 12_000_000 }),
            ..Step::default()
        };
        let text = serde_json::to_string(&step).unwrap();
        assert_eq!(
            text,
            r#"{"tenant":"acme","step":"STEP_KIND_UPSYNC","outcome":"OUTCOME_DONE","duration":"0.012s"}"#
        );
        let newer = text.replace("{\"tenant\"", "{\"later\":1,\"tenant\"");
        assert_eq!(serde_json::from_str::<Step>(&newer).unwrap(), step);
    }
}
