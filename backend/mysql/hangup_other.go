//go:build !linux

package mysql

import "context"

// hangup does nothing here: the next ping finds out.
func hangup(context.Context, *wire, func()) {}
