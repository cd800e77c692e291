package zookeeper

import (
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Options{
		"zk://h":                          {Addrs: []string{"h:2181"}},
		"zk://h:2182/":                    {Addrs: []string{"h:2182"}},
		"zk://[::1]/a/b":                  {Addrs: []string{"[::1]:2181"}, Chroot: "/a/b"},
		"zk://h/a%20b?recipe=rwlock":      {Addrs: []string{"h:2181"}, Chroot: "/a b", Recipe: ReadWrite},
		"zk://u:p%40w@h/a":                {Addrs: []string{"h:2181"}, Chroot: "/a", AuthScheme: "digest", Auth: "u:p@w"},
		"zk://h?auth=digest:u:p":          {Addrs: []string{"h:2181"}, AuthScheme: "digest", Auth: "u:p"},
		"zk://h?auth=ip:1.2.3.4&acl=open": {Addrs: []string{"h:2181"}, AuthScheme: "ip", Auth: "1.2.3.4", Open: true},
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseURL(u); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", address, got, err, want)
		}
	}
	// cmd parses several hosts as url.Parse would not.
	several := &url.URL{Scheme: "zk", Host: "a,b:2182,[::1]:2183", Path: "/x"}
	if got, err := ParseURL(several); err != nil || !reflect.DeepEqual(got.Addrs, []string{"a:2181", "b:2182", "[::1]:2183"}) {
		t.Errorf("several hosts: %+v, %v", got, err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, address := range []string{
		"zk://", "zk:///a", "zk:h", "zk://h#secret", "zk://h/a//b", "zk://h/../b", "zk://h/%F0%9F%98%80", "zk://h/zookeeper",
		"zk://h?recipe=secret", "zk://h?auth=secret", "zk://h?auth=:secret", "zk://u:secret@h?auth=digest:u:secret", "zk://h?acl=secret",
		"zk://h?p=secret@h", "zk://h?ca=/x", "zks://h?cert=x", "zks://h?ca=/does/not/exist", "zk://h?recipe=rwlock&recipe=rwlock", "zk://h:x/",
	} {
		u, err := url.Parse(address)
		if err != nil {
			continue // cmd says what is wrong, and does not show it
		}
		if _, err := ParseURL(u); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v, want %v", address, err, backend.ErrInvalid)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the message shows a secret: %v", address, err)
		}
	}
}

func TestAddressShowsNoSecret(t *testing.T) {
	u, err := url.Parse("zk://user:secret@h1/a?recipe=rwlock")
	if err != nil {
		t.Fatal(err)
	}
	opts, err := ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := New(opts).Limits().Address, "zk://h1:2181/a?recipe=rwlock"; got != want {
		t.Errorf("address %q, want %q", got, want)
	}
}
