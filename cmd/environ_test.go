package cmd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

// commandEnv is the environment of a command under a hold of that name, as a map.
func commandEnv(t *testing.T, name string, env []string) (list []string, byName map[string]string) {
	t.Helper()
	j := &job{
		app: &app{}, opts: &runOptions{name: name}, id: "id-of-" + name, limits: backend.Limits{Kind: "file", Address: "file:///d"},
		hold: &outerHold{grant: backend.Grant{Token: "token-of-" + name, Fence: 7}},
	}
	list, byName = j.environ(env), map[string]string{}
	for _, v := range list {
		key, value, _ := strings.Cut(v, "=")
		if _, twice := byName[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		byName[key] = value
	}
	return list, byName
}

func heldNames(t *testing.T, text string) []string {
	t.Helper()
	var held []heldEntry
	if err := json.Unmarshal([]byte(text), &held); err != nil {
		t.Fatalf("DLOCK_HELD=%s: %v", text, err)
	}
	var names []string
	for _, h := range held {
		names = append(names, h.Name)
	}
	return names
}

func TestInnermostLockWins(t *testing.T) {
	before := []string{"A=1", "DLOCK_NAMES=mine", "EMPTY=", "DLOCK_NAME=foreign", "odd"}
	outer, vars := commandEnv(t, "outer", before)
	if vars["DLOCK_NAME"] != "outer" || vars["DLOCK_FENCE"] != "7" || vars["DLOCK_BACKEND_KIND"] != "file" || vars["DLOCK_NAMES"] != "mine" || vars["A"] != "1" {
		t.Errorf("outer: %q", outer)
	}
	inner, vars := commandEnv(t, "inner", outer)
	if vars["DLOCK_NAME"] != "inner" || vars["DLOCK_TOKEN"] != "token-of-inner" {
		t.Errorf("inner: %q", inner)
	}
	if got := heldNames(t, vars["DLOCK_HELD"]); !slices.Equal(got, []string{"outer", "inner"}) {
		t.Errorf("held: %v", got)
	}
	if !slices.Equal(before, []string{"A=1", "DLOCK_NAMES=mine", "EMPTY=", "DLOCK_NAME=foreign", "odd"}) {
		t.Errorf("our own environment was changed: %q", before)
	}
}

func TestForeignHeldIsDropped(t *testing.T) {
	for _, foreign := range []string{"", "yes", "{}", `"x"`, "[", "null", `[1] 2`} {
		_, vars := commandEnv(t, "j", []string{"DLOCK_HELD=" + foreign})
		if got := heldNames(t, vars["DLOCK_HELD"]); !slices.Equal(got, []string{"j"}) {
			t.Errorf("DLOCK_HELD=%q: held %v", foreign, got)
		}
	}
}

func TestJobURL(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{"GITHUB_SERVER_URL": "https://gh", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "5", "BUILD_URL": "x"}, "https://gh/o/r/actions/runs/5"},
		{map[string]string{"GITHUB_SERVER_URL": "https://gh", "GITHUB_REPOSITORY": "o/r"}, ""},
		{map[string]string{"CI_JOB_URL": "https://gitlab/job", "BUILD_URL": "x"}, "https://gitlab/job"},
		{map[string]string{"BUILD_URL": "https://jenkins/1"}, "https://jenkins/1"},
	} {
		if got := jobURL(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
	}
}
