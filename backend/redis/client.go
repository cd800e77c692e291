package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	dialLimit  = 5 * time.Second
	bufferSize = 4096 // bytes; a process has few connections, and small replies
)

// silent swallows the client library's own log.
type silent struct{}

// Printf prints nothing: each event that matters reaches us as an error.
func (silent) Printf(context.Context, string, ...any) {}

// newClient makes the client of one server, of sentinels or of a cluster. Its own
// retries are off: a take whose outcome is unknown must not be sent again behind our
// back, and each try has its own start of the lease. A connection says HELLO, and
// SELECT where the database is not 0, and nothing else; after that onConnect is called.
func newClient(o Options, onConnect func(context.Context, *redis.Conn) error) redis.UniversalClient {
	redis.SetLogger(silent{})
	switch {
	case o.Master != "":
		f := o.failover()
		f.OnConnect = onConnect
		return redis.NewFailoverClient(f)
	case o.Cluster:
		c := o.cluster()
		c.OnConnect = onConnect
		return redis.NewClusterClient(c)
	}
	s := o.single()
	s.OnConnect = onConnect
	return redis.NewClient(s)
}

func (o *Options) single() *redis.Options {
	s := &redis.Options{
		Username: o.Username, Password: o.Password, DB: o.DB,
		Protocol: 3, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
		MaxRetries: -1, DialerRetries: 1, DialTimeout: dialLimit, ContextTimeoutEnabled: true,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, PipelinePoolSize: -1,
	}
	if o.Socket != "" {
		s.Network, s.Addr = "unix", o.Socket
		return s
	}
	s.Addr, s.TLSConfig = o.Addrs[0], o.TLS
	return s
}

func (o *Options) failover() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: o.Master, SentinelAddrs: o.Addrs,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		Username: o.Username, Password: o.Password, DB: o.DB,
		Protocol: 3, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: dialLimit, ContextTimeoutEnabled: true,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, PipelinePoolSize: -1,
		TLSConfig: o.TLS,
	}
}

func (o *Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: o.Addrs, Username: o.Username, Password: o.Password,
		Protocol: 3, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
		MaxRetries: -1, DialerRetries: 1, DialTimeout: dialLimit, ContextTimeoutEnabled: true,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, PipelinePoolSize: -1,
		TLSConfig: o.TLS,
	}
}

// sentinel is a client of one of the sentinels.
func (o *Options) sentinel(addr string) *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{
		Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLS,
		Protocol: 3, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
		MaxRetries: -1, DialerRetries: 1, DialTimeout: dialLimit,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, PipelinePoolSize: -1,
	})
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
