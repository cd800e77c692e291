package cmd

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// heldEntry is one lock that the command's ancestors hold, in DLOCK_HELD.
type heldEntry struct {
	Backend   string `json:"backend"` // without secrets
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Mode      string `json:"mode"`
	Token     string `json:"token"`
	Run       string `json:"run"` // one a dlock run; the guard knows the command's processes by it
}

// environ is the environment of the command: ours, and at its end what it may want to
// know about its lock, so that the innermost of several dlocks wins.
func (j *job) environ(env []string) []string {
	grant := j.hold.Grant()
	var held []json.RawMessage
	for _, v := range env {
		if text, ok := strings.CutPrefix(v, "DLOCK_HELD="); ok && json.Unmarshal([]byte(text), &held) != nil {
			held = nil // not ours
		}
	}
	entry, _ := json.Marshal(heldEntry{
		Backend: j.limits.Address, Namespace: j.place.namespace, Name: j.opts.name,
		Mode: j.opts.mode().String(), Token: grant.Token, Run: j.id,
	})
	text, _ := json.Marshal(append(held, entry))
	own := []string{
		"DLOCK_NAME=" + j.opts.name,
		"DLOCK_TOKEN=" + grant.Token,
		"DLOCK_FENCE=" + strconv.FormatUint(grant.Fence, 10),
		"DLOCK_HELD=" + string(text),
		"DLOCK_BACKEND_KIND=" + j.limits.Kind,
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, key+"=") })
	})
	return append(env, own...)
}
