package cmd

import (
	"github.com/hashicorp/consul/api"
)

// clients are the libraries of the lock services that are not there yet. They are
// linked from the start, so that every measurement of start-up time and size counts
// them; a line goes when its service imports the library itself.
var clients = [...]any{api.NewClient}
