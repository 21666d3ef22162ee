//go:build tools

// Package tools pins the NATS server that the testbed runs.
package tools

import (
	_ "github.com/nats-io/nats-server/v2"
)
