//go:build tools

// Package tools pins the Helm command line tool.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
