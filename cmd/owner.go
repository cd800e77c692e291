package cmd

import (
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// maxText bounds what is stored of a command line or a reason, in bytes.
const maxText = 300

// owner says who asks for a lock, for others to read.
func owner(kind backend.OwnerKind, command []string, reason string) backend.Owner {
	host, _ := os.Hostname()
	o := backend.Owner{
		Kind: kind, Host: host, BootID: boottime.BootID(), PIDNS: proc.Namespace(), PID: os.Getpid(),
		User: strconv.Itoa(os.Getuid()), Command: strings.Join(command, " "), Reason: reason,
	}
	if u, err := user.LookupId(o.User); err == nil {
		o.User = u.Username
	}
	if self, err := proc.Get(o.PID); err == nil {
		o.Start = self.Start
	}
	if o.Reason == "" {
		o.Reason = jobURL(os.Getenv)
	}
	o.Command, o.Reason = cut(o.Command), cut(o.Reason)
	return o
}

// cut shortens text for others to read.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// jobURL finds the page of the CI job that we run in.
func jobURL(env func(string) string) string {
	if server, repo, run := env("GITHUB_SERVER_URL"), env("GITHUB_REPOSITORY"), env("GITHUB_RUN_ID"); server != "" && repo != "" && run != "" {
		return server + "/" + repo + "/actions/runs/" + run
	}
	for _, name := range []string{"CI_JOB_URL", "BUILD_URL"} {
		if url := env(name); url != "" {
			return url
		}
	}
	return ""
}

// ancestor finds the holder that is a living dlock run above this process: to wait
// for it would be to wait for ever.
func ancestor(holders []backend.Holder) (backend.Holder, bool) {
	boot, ns := boottime.BootID(), proc.Namespace()
	for pid, steps := os.Getppid(), 0; pid > 0 && steps < 1000; steps++ {
		p, err := proc.Get(pid)
		if err != nil {
			break
		}
		for _, h := range holders {
			if o := h.Owner; o.Kind == backend.Run && o.BootID == boot && o.PIDNS == ns && o.PID == p.PID && o.Start == p.Start && !h.Tail {
				return h, true
			}
		}
		pid = p.PPID
	}
	return backend.Holder{}, false
}
