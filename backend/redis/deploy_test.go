package redis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// fromURL opens a Backend as the command line does.
func fromURL(t testing.TB, text string) *Backend {
	t.Helper()
	o, err := ParseURL(mustParse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	o.Namespace = "dlock"
	return use(t, o)
}

// mustParse parses a URL that may name several hosts.
func mustParse(t testing.TB, text string) *url.URL {
	t.Helper()
	scheme, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	user, hosts := "", rest[:end]
	if i := strings.LastIndex(hosts, "@"); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	u, err := url.Parse(scheme + "://" + user + "hosts" + rest[end:])
	if err != nil {
		t.Fatal(err)
	}
	u.Host = hosts
	return u
}

// works shows that a Backend does what it has to: take, wait, hand over, look.
func works(t *testing.T, b *Backend) {
	t.Helper()
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(1)} {
		first := backendtest.MustAcquire(t, b, backendtest.Request("job", mode))
		if _, err := first.Renew(t.Context()); err != nil {
			t.Errorf("%v: renewal: %v", mode, err)
		}
		w := backendtest.Wait(t, b, backendtest.Request("job", backendtest.Exclusive))
		backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, b, "job").Waiters) == 1 })
		backendtest.MustRelease(t, first)
		backendtest.MustRelease(t, w.Hold(t))
	}
}

// fails wants an error of a kind, in words, with nothing secret in it.
func fails(t *testing.T, err, kind error, words string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want %q with %q and no secret", err, kind, words)
	}
}

func tryAcquire(t *testing.T, b *Backend) error {
	t.Helper()
	_, err := b.Acquire(t.Context(), backendtest.NoWait(backendtest.Request("job", backendtest.Exclusive)))
	return err
}

// TestFailover loses the master in two ways, with a hold that is kept and a line.
func TestFailover(t *testing.T) {
	for what, lose := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill, "stopped": (*redistest.Server).Stop,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := redistest.Sentinels(t)
			b := use(t, Options{Namespace: "dlock", Master: s.Name, Addrs: s.SentinelAddrs()})
			k := keep(t, b, leaseOf("job", backendtest.Exclusive, 20*time.Second))
			fence := k.hold.Grant().Fence
			var line []*backendtest.Waiter
			for i := range 3 {
				line = append(line, backendtest.Wait(t, b, leaseOf("job", backendtest.Exclusive, 20*time.Second)))
				backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, b, "job").Waiters) == i+1 })
			}
			if n := s.Master.Client().Wait(t.Context(), 1, 0).Val(); n != 1 {
				t.Fatalf("%d replicas have all", n)
			}
			lose(s.Master)
			s.AwaitFailover(t)
			k.renews(t)
			subscribed := func() bool {
				return len(s.Replica.Client().PubSubChannels(t.Context(), "dlock:*").Val()) == 3
			}
			backendtest.Eventually(t, "the waiters listen to the new master", subscribed)
			k.Stop()
			backendtest.MustRelease(t, k.hold)
			for _, w := range line {
				h := w.Hold(t)
				if next := h.Grant().Fence; next <= fence {
					t.Errorf("fence %d after %d", next, fence)
				} else {
					fence = next
				}
				backendtest.MustRelease(t, h)
			}
		})
	}
}

func TestReplicas(t *testing.T) {
	s := redistest.Sentinels(t)
	client := s.Master.Client()
	b := fromURL(t, s.Master.URL()+"?replicas=1")
	works(t, b)
	h := backendtest.MustAcquire(t, b, backendtest.Request("held", backendtest.Exclusive))
	s.Replica.Stop()
	fails(t, tryAcquire(t, b), backend.ErrUnavailable, "0 of the 1 replicas")
	if n := client.Exists(t.Context(), "dlock:{job}").Val(); n != 0 {
		t.Error("what was not replicated is held")
	}
	_, err := h.Renew(t.Context())
	fails(t, err, backend.ErrUnavailable, "0 of the 1 replicas")
	s.Replica.Cont()
	backendtest.Eventually(t, "the replica is back", func() bool { _, err := h.Renew(t.Context()); return err == nil })
	backendtest.MustRelease(t, h)
	works(t, b)
}

func TestCluster(t *testing.T) {
	c := redistest.Cluster(t)
	addrs := strings.Join(c.Addrs(), ",")
	for what, namespace := range map[string]string{"namespace": "dlock", "plain names": ""} {
		t.Run(what, func(t *testing.T) {
			o, err := ParseURL(mustParse(t, "redis+cluster://"+addrs))
			if err != nil {
				t.Fatal(err)
			}
			o.Namespace = namespace
			b := use(t, o)
			works(t, b)
			names, split := []string{"a", "b", "c", "{a}b", "a{b", "ä b", "a:b"}, []string{"{}x", "a}b", "}{"}
			if namespace != "" {
				names, split = append(names, split...), nil
			}
			for _, name := range split {
				_, err := b.Acquire(t.Context(), backendtest.Request(name, backendtest.Exclusive))
				fails(t, err, backend.ErrInvalid, "would need keys in two slots")
			}
			nodes := map[*redistest.Server]bool{}
			for _, name := range names {
				k, err := b.keys(name, "")
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				nodes[c.NodeFor(t, k[keyLock])] = true
				first := backendtest.MustAcquire(t, b, backendtest.Request(name, backendtest.Exclusive))
				w := backendtest.Wait(t, b, leaseOf(name, backendtest.Shared, time.Hour))
				backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, b, name).Waiters) == 1 })
				backendtest.MustRelease(t, first)
				h := w.Hold(t) // by push: its heartbeat is half an hour away
				if _, err := h.Renew(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if len(nodes) != 3 {
				t.Errorf("the locks are on %d nodes, want 3", len(nodes))
			}
			list, err := b.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, l := range list {
				found = append(found, l.Name)
			}
			slices.Sort(names)
			slices.Sort(found)
			if !slices.Equal(found, names) {
				t.Errorf("inspect finds %q, want %q", found, names)
			}
		})
	}
	t.Run("scripts forgotten", func(t *testing.T) {
		b := fromURL(t, "redis+cluster://"+addrs)
		for _, node := range c.Nodes {
			node.Client().ScriptFlush(t.Context())
		}
		works(t, b)
	})
	t.Run("a node by a plain URL", func(t *testing.T) {
		for _, node := range c.Nodes {
			b := fromURL(t, node.URL())
			_, err := b.Acquire(t.Context(), backendtest.NoWait(backendtest.Request("one", backendtest.Exclusive)))
			fails(t, err, backend.ErrInvalid, "is a node of a cluster: use redis+cluster:// in its URL")
		}
	})
	t.Run("no cluster", func(t *testing.T) {
		b := fromURL(t, "redis+cluster://"+redistest.Start(t).Addr())
		fails(t, tryAcquire(t, b), backend.ErrInvalid, "is no cluster: use redis:// in its URL")
	})
}

func TestPlainURLAtAReplica(t *testing.T) {
	s := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(s.Port), "--replica-read-only", "yes")
	fails(t, tryAcquire(t, fromURL(t, replica.URL())), backend.ErrUnavailable, "is a replica, and cannot be written")
}

func TestPasswords(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "secret1", "--user", "jim", "on", ">secret2", "~*", "&*", "+@all")
	for user, ok := range map[string]bool{":secret1@": true, "jim:secret2@": true, "jim:secret3@": false, ":secret3@": false, "nobody:secret1@": false} {
		b := fromURL(t, "redis://"+user+s.Addr())
		if ok {
			works(t, b)
			continue
		}
		const refused = "refuses this user name or password"
		fails(t, tryAcquire(t, b), backend.ErrDenied, refused)
		_, err := b.Inspect(t.Context(), "j")
		fails(t, err, backend.ErrDenied, refused)
		fails(t, tryAcquire(t, fromURL(t, "redis://"+user+s.Addr()+"?replicas=1")), backend.ErrDenied, refused)
	}
	fails(t, tryAcquire(t, fromURL(t, s.URL())), backend.ErrDenied, "wants a password")
}

// TestACL gives users less than all.
func TestACL(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client()
	for user, rules := range map[string][]string{
		"own":      {"~dlock:*", "&dlock:*", "+@all"},
		"noeval":   {"~*", "&*", "+@all", "-eval", "-evalsha"},
		"nokeys":   {"~other:*", "&*", "+@all"},
		"readonly": {"%R~dlock:*", "&*", "+@all"},
		"deaf":     {"~*", "resetchannels", "+@all"},
		"mute":     {"~*", "&*", "+@all", "-publish"},
		"nosub":    {"~*", "&*", "+@all", "-subscribe"},
	} {
		args := []any{"acl", "setuser", user, "reset", "on", ">secret"}
		for _, r := range rules {
			args = append(args, r)
		}
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) *Backend { return fromURL(t, "redis://"+user+":secret@"+s.Addr()) }
	works(t, as("own"))
	for _, user := range []string{"noeval", "nokeys", "readonly"} {
		fails(t, tryAcquire(t, as(user)), backend.ErrDenied, "ACL")
	}
	first := backendtest.MustAcquire(t, as("own"), leaseOf("job", backendtest.Exclusive, time.Hour))
	for _, user := range []string{"deaf", "mute", "nosub"} {
		ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
		_, err := as(user).Acquire(ctx, leaseOf("job", backendtest.Exclusive, time.Hour))
		if ctx.Err() != nil {
			t.Errorf("%s waits", user)
		}
		cancel()
		fails(t, err, backend.ErrDenied, "ACL")
	}
	if st := backendtest.InspectOne(t, as("own"), "job"); len(st.Waiters) > 0 {
		t.Errorf("in line: %+v", st.Waiters)
	}
	backendtest.MustRelease(t, first)
	backendtest.MustRelease(t, backendtest.MustAcquire(t, as("deaf"), backendtest.Request("job", backendtest.Exclusive)))
}

func TestTLS(t *testing.T) {
	s := redistest.TLS(t)
	with := func(parts ...string) string { return s.URL() + "?" + strings.Join(parts, "&") }
	ca, cert, key := "ca="+s.CA, "cert="+s.Cert, "key="+s.Key
	works(t, fromURL(t, with(ca, cert, key)))
	works(t, fromURL(t, with(ca, cert, key, "server-name=localhost")))
	fails(t, tryAcquire(t, fromURL(t, with(cert, key))), backend.ErrUnavailable, "certificate")
	fails(t, tryAcquire(t, fromURL(t, with(ca, cert, key, "server-name=other"))), backend.ErrUnavailable, "certificate")
	fails(t, tryAcquire(t, fromURL(t, with(ca))), backend.ErrUnavailable, "certificate")
	other := redistest.TLS(t)
	fails(t, tryAcquire(t, fromURL(t, s.URL()+"?ca="+other.CA+"&"+cert+"&"+key)), backend.ErrUnavailable, "certificate")
	plain := fromURL(t, "redis://"+s.Addr())
	fails(t, tryAcquire(t, plain), backend.ErrUnavailable, s.Addr())
	fails(t, tryAcquire(t, fromURL(t, "rediss://"+redistest.Start(t).Addr())), backend.ErrUnavailable, "does not answer")
}

func TestSocketAndDatabase(t *testing.T) {
	s := redistest.Start(t)
	works(t, fromURL(t, "redis+unix://"+s.Socket()))
	fails(t, tryAcquire(t, fromURL(t, "redis+unix://"+s.Socket()+"x")), backend.ErrUnavailable, "no such file")
	zero, three, socket := fromURL(t, s.URL()), fromURL(t, s.URL()+"/3"), fromURL(t, "redis+unix://"+s.Socket()+"?db=3")
	backendtest.MustAcquire(t, three, backendtest.Request("job", backendtest.Exclusive))
	backendtest.MustBeBusy(t, socket, backendtest.Request("job", backendtest.Exclusive))
	works(t, zero)
	o := *s.Client().Options()
	o.DB = 3
	client := redis.NewClient(&o)
	defer client.Close()
	if n := client.Exists(t.Context(), "dlock:{job}").Val(); n != 1 {
		t.Errorf("%d locks in database 3", n)
	}
	fails(t, tryAcquire(t, fromURL(t, s.URL()+"/99")), backend.ErrInvalid, "no such database number")
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]struct {
		address string
		check   func(Options) bool
	}{
		"redis://h":                                     {"redis://h:6379", nil},
		"redis://h/":                                    {"redis://h:6379", nil},
		"redis://h:1/2":                                 {"redis://h:1/2", func(o Options) bool { return o.DB == 2 }},
		"redis://h:1?db=2&replicas=3":                   {"redis://h:1/2", func(o Options) bool { return o.Replicas == 3 }},
		"redis://[::1]":                                 {"redis://[::1]:6379", nil},
		"redis://:secret@h":                             {"redis://h:6379", func(o Options) bool { return o.Password == "secret" && o.Username == "" }},
		"redis://jim:secret%2F%23@h":                    {"redis://h:6379", func(o Options) bool { return o.Password == "secret/#" && o.Username == "jim" }},
		"rediss://h":                                    {"rediss://h:6379", func(o Options) bool { return o.TLS != nil }},
		"rediss://h?server-name=n":                      {"rediss://h:6379", func(o Options) bool { return o.TLS.ServerName == "n" }},
		"redis+unix:///a/b":                             {"redis+unix:///a/b", nil},
		"redis+unix://u:secret@/a/b?db=4":               {"redis+unix:///a/b?db=4", func(o Options) bool { return o.Password == "secret" && o.DB == 4 }},
		"redis+sentinel://a,b:2,c/main":                 {"redis+sentinel://a:26379,b:2,c:26379/main", nil},
		"rediss+sentinel://a/main/5":                    {"rediss+sentinel://a:26379/main/5", func(o Options) bool { return o.DB == 5 && o.TLS != nil }},
		"redis+sentinel://a/m?sentinel-password=secret": {"redis+sentinel://a:26379/m", func(o Options) bool { return o.SentinelPassword == "secret" }},
		"redis+cluster://u:secret@a:1,b:2":              {"redis+cluster://a:1,b:2", func(o Options) bool { return o.Cluster && o.Username == "u" }},
		"rediss+cluster://a":                            {"rediss+cluster://a:6379", nil},
	} {
		o, err := ParseURL(mustParse(t, text))
		if err != nil || o.address() != want.address || want.check != nil && !want.check(o) {
			t.Errorf("%s: %s, %+v, %v", text, o.address(), o, err)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for text, words := range map[string]string{
		"redis://":                           "names a host",
		"redis://:secret@":                   "names a host",
		"redis://u:secret@h:x":               "names a host",
		"redis://u:secret@h:99999":           "names a host",
		"redis://u:secret@a,b":               "names one server",
		"redis://u:secret@h/x":               "db in a Redis URL is a number",
		"redis://u:secret@h/-1":              "db in a Redis URL is a number",
		"redis://u:secret@h/99999999":        "db in a Redis URL is a number",
		"redis://h/secret":                   "db in a Redis URL is a number",
		"redis://h:1?replicas=secret":        "replicas in a Redis URL is a number",
		"redis://u:secret@h?nope=1":          "unknown option ?nope",
		"redis://u:12?secret@h":              "%3F",
		"redis+sentinel://a:x,b/main":        "names a host",
		"redis://u:secret@h?db=1&db=2":       "given once",
		"redis://u:secret@h?db=":             "given once",
		"redis://u:secret@h?ca=/x":           "need TLS",
		"rediss://u:secret@h?ca=/missing":    "?ca",
		"rediss://u:secret@h?cert=/missing":  "go together",
		"rediss://u:secret@h?cert=/x&key=/y": "?cert and ?key",
		"redis://u:secret@h#x":               "%23",
		"redis+unix://u:secret@h/x":          "Unix socket",
		"redis+unix://":                      "Unix socket",
		"redis+sentinel://u:secret@h":        "sentinels are",
		"redis+sentinel://u:secret@h/main/x": "is a number",
		"redis+cluster://u:secret@h/1":       "no database numbers",
		"redis+cluster://u:secret@h?db=1":    "no database numbers",
		"redis+other://u:secret@h":           "unknown kind",
	} {
		_, err := ParseURL(mustParse(t, text))
		if err == nil {
			t.Errorf("%s is accepted", text)
			continue
		}
		fails(t, err, backend.ErrInvalid, words)
	}
}
