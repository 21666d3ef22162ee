//! NATS JetStream: streams, facts, steps, consumers and claim-wide reads
