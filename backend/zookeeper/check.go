package zookeeper

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at the limits of sessions and at the ensemble.
func (b *Backend) Check(ctx context.Context, ttl time.Duration) []backend.Check {
	return append([]backend.Check{b.checkSession(ctx, ttl)}, append(b.checkEnsemble(ctx), b.checkClock(ctx)...)...)
}

// checkSession asks for a session of that length, and looks at what is granted.
func (b *Backend) checkSession(ctx context.Context, ttl time.Duration) backend.Check {
	const check = "session"
	s, err := b.open(ttl)
	if err != nil {
		return backend.Found(check, backend.Fail, "look at the servers' logs", "%v", err)
	}
	defer b.end(s)
	granted, err := s.granted(ctx)
	switch {
	case err != nil:
		return backend.Found(check, backend.Fail, "look at the servers' logs", "%v", err)
	case granted < ttl:
		return backend.Found(check, backend.Warn, "raise maxSessionTimeout, or use a --ttl within it",
			"a TTL of %v is cut to %v by maxSessionTimeout", ttl, granted)
	case granted > ttl:
		return backend.Found(check, backend.Warn, "lower minSessionTimeout or tickTime, or use a longer --ttl",
			"a TTL of %v is raised to %v by minSessionTimeout: a crash frees a lock no earlier", ttl, granted)
	}
	return backend.Good(check, "a TTL of %v is granted as it is", ttl)
}

// configNode is where an ensemble tells its members.
const configNode = "/zookeeper/config"

// checkEnsemble looks at the number of servers, and at whether those of the URL serve.
func (b *Backend) checkEnsemble(ctx context.Context) []backend.Check {
	s, err := b.shared()
	if err != nil {
		return []backend.Check{backend.Found("quorum", backend.Fail, "look at the servers' logs", "%v", err)}
	}
	config, err := call(ctx, s, func(c *zk.Conn) ([]byte, error) {
		data, _, err := c.Get(configNode)
		return data, err
	})
	if err != nil && !is(err, zk.ErrNoNode) {
		return append(b.checkServers(), backend.Found("quorum", backend.Warn, "let this user read "+configNode, "the members of the ensemble cannot be seen: %v", err))
	}
	return append(b.checkServers(), quorum(voters(string(config)), len(b.opts.Addrs)))
}

// voters counts the servers of a configuration that vote.
func voters(config string) (n int) {
	for line := range strings.Lines(config) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
			n++
		}
	}
	return n
}

// quorum judges the number of servers.
func quorum(voters, named int) backend.Check {
	const check = "quorum"
	switch {
	case voters <= 1:
		return backend.Found(check, backend.Warn, "three servers stand the loss of one", "a single server: when it is away, commands are stopped at the end of their lease")
	case voters%2 == 0:
		return backend.Found(check, backend.Warn, "add one, or take one away", "%d servers stand the loss of %d, as %d would", voters, (voters-1)/2, voters-1)
	case named < 2:
		return backend.Found(check, backend.Warn, "name more of them in the URL: zk://h1,h2,h3", "%d servers, and the URL names one: when it is away, so are the locks", voters)
	}
	return backend.Good(check, "%d servers stand the loss of %d", voters, (voters-1)/2)
}

// serverLimit is how long a server may take to tell what it is.
const serverLimit = time.Second

// checkServers asks each server of the URL, by a command that is always allowed, and
// that is not to be had with TLS.
func (b *Backend) checkServers() (checks []backend.Check) {
	if b.opts.TLS != nil {
		return nil
	}
	for _, addr := range b.opts.Addrs {
		if mode := serverMode(addr); mode != "" {
			checks = append(checks, backend.Good("server", "%s serves as %s", addr, mode))
			continue
		}
		checks = append(checks, backend.Found("server", backend.Warn,
			"start it, and see that it reaches the others", "%s does not tell what it is", addr))
	}
	return checks
}

// serverMode asks a server for its part in the ensemble. The client library reads no
// answers of newer servers.
func serverMode(addr string) string {
	c, err := net.DialTimeout("tcp", addr, serverLimit)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(serverLimit)) // if not, the server hangs up
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(c, 4096)) // what came, came
	for line := range strings.Lines(string(text)) {
		if mode, found := strings.CutPrefix(line, "Mode: "); found {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// checkClock compares the clocks by the time of a node that counts for nobody.
func (b *Backend) checkClock(ctx context.Context) []backend.Check {
	s, err := b.shared()
	if err != nil {
		return nil
	}
	dir, err := b.dir("dlock-doctor")
	if err != nil {
		return nil
	}
	millis, err := b.now(ctx, s, dir)
	if err != nil || millis == 0 {
		return nil
	}
	return []backend.Check{backend.ClockCheck(time.UnixMilli(millis), time.Now())}
}
