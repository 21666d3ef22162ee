//go:build tools

// Package tools pins the NATS command line tool.
package tools

import (
	_ "github.com/nats-io/natscli/nats"
)
