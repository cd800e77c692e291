package consul

import (
	"net/url"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend/backendtest"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, []string{"consul", "consuls"}, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return o.address(), err
	})
}

// FuzzView: whatever stands in the keys of a lock, it can be shown, and a shared hold can
// be put into it; nobody both holds and waits.
func FuzzView(f *testing.F) {
	const rec = `{"token":"t","mode":{"kind":"exclusive"},"ttl":10000,"since":5}`
	shared := strings.ReplaceAll(rec, `exclusive"}`, `shared"},"held":true`)
	f.Add(rec, rec, "s", true, uint64(api.LockFlagValue), "s")
	f.Add(shared, `{"shared":true,"members":{"t":{"ttl":1}}}`, "g", true, uint64(api.LockFlagValue), "s")
	f.Add(shared, `{"shared":true}`, "g", true, uint64(api.LockFlagValue), "s")
	f.Add(strings.ReplaceAll(rec, `exclusive"`, `slots","n":2`), `{"Limit":2,"Holders":{"s":true,"x":true}}`, "", true, uint64(api.SemaphoreFlagValue), "s")
	f.Add(`{"passed":"s","times":1}`, rec, "s", false, uint64(api.LockFlagValue), "s")
	f.Add(rec, `{"Limit":-1,"Holders":null}`, "", false, uint64(api.SemaphoreFlagValue), "s")
	f.Add(`{"token":"t","until":-9223372036854775808,"since":9223372036854775807,"ttl":9223372036854775807}`, "x", "s", true, uint64(0), "s")
	f.Fuzz(func(t *testing.T, entry, lock, session string, semaphored bool, flags uint64, contender string) {
		b := &Backend{}
		k, err := b.keys("j", "t")
		if err != nil {
			t.Fatal(err)
		}
		pairs := api.KVPairs{
			{Key: k.line + "t", Value: []byte(entry), Session: contender, CreateIndex: 3, ModifyIndex: 4},
			{Key: k.lock(), Value: []byte(lock), Session: session, Flags: flags, CreateIndex: 1, ModifyIndex: 2},
		}
		if semaphored {
			pairs = append(pairs, &api.KVPair{Key: k.gate + contender, Session: contender, Flags: api.SemaphoreFlagValue})
		}
		if to := passedTo(pairs[:1], "s").To; to != "" && (to != "s" || contender != "s") {
			t.Errorf("%q: passed to %q", entry, to)
		}
		v := newView(k, pairs)
		st := v.status()
		ours := 0
		for _, h := range st.Holders {
			if h.Token != "" {
				ours++
			}
			if h.Leased && h.Held < 0 {
				t.Errorf("%q, %q: %+v", entry, lock, h)
			}
		}
		if ours+len(st.Waiters) != len(v.entries) {
			t.Errorf("%q, %q: %d holders and %d waiters of %d", entry, lock, ours, len(st.Waiters), len(v.entries))
		}
		_, _ = v.holder("t")
		if g := v.group; g != nil {
			g.Members["new"] = member{}
			v.prune(g)
			g.wants()
		}
		if v.sem != nil {
			dead, live := v.slots()
			if len(dead)+live != len(v.clone()) {
				t.Errorf("%q: %q and %d", lock, dead, live)
			}
		}
	})
}
