package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	handshakeLimit = time.Second // of one connection, from its start to the server's greeting
	sendBuffer     = 256 << 10   // bytes; more than any request of ours
	firstPause     = 50 * time.Millisecond
	lastPause      = time.Second
)

// session is one session with the ensemble: the client library's connection, and what
// we have to know of it. It never becomes another session, as the library's would.
type session struct {
	b    *Backend
	conn *zk.Conn

	poke  chan struct{} // has an element when something has changed, for one who listens
	gone  chan struct{} // closed when the session is over
	stop  chan struct{} // closed when it is over or we have done with it
	holds atomic.Bool   // a lock hangs on it

	greeted    chan struct{} // closed when the server has granted a timeout
	introduced chan struct{} // closed when the server knows who we are, or has refused that
	refused    error         // written before that

	mu      sync.Mutex
	id      int64 // zero before the first greeting
	clock   clock
	up      bool
	over    bool
	closing bool
	dialErr error           // why there is no connection; nil if unknown
	wire    *wire           // the latest
	watched map[string]bool // the paths that the library watches for us
}

// open starts a session that lasts for about timeout without a sign of life.
func (b *Backend) open(timeout time.Duration) (*session, error) {
	s := &session{
		b: b, poke: make(chan struct{}, 1), gone: make(chan struct{}), stop: make(chan struct{}),
		greeted: make(chan struct{}), introduced: make(chan struct{}), watched: map[string]bool{},
	}
	timeout = min(timeout, math.MaxInt32*time.Millisecond)
	var err error
	s.conn, _, err = zk.Connect(b.opts.Addrs, timeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(&hosts{s: s}), zk.WithEventCallback(s.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithMaxConnBufferSize(sendBuffer))
	if err != nil {
		return nil, b.translate(err, nil)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.closing.Go(s.close)
		return nil, b.translate(zk.ErrClosing, nil)
	}
	b.sessions[s] = true
	go s.introduce()
	return s, nil
}

// introduce tells the server who we are, before any other request. A refusal ends it;
// what a wrong password does not open shows in the requests.
func (s *session) introduce() {
	defer close(s.introduced)
	if s.b.opts.AuthScheme == "" {
		return
	}
	for {
		err := s.conn.AddAuth(s.b.opts.AuthScheme, []byte(s.b.opts.Auth))
		if err == nil {
			return
		}
		if answered(err) {
			s.refused = s.b.translate(err, nil)
			return
		}
		select {
		case <-s.stop:
			return
		case <-time.After(firstPause):
		}
	}
}

// silent swallows the client library's own log.
type silent struct{}

// Printf prints nothing: each event that matters reaches us as an error.
func (silent) Printf(string, ...any) {}

// hosts lets the library try the servers in turn, each with its present addresses. It
// waits after each round, a little longer each time.
type hosts struct {
	s       *session
	servers []string
	next    int
	tried   int // since the last connection
}

// Init takes the servers, which the library has shuffled.
func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

// Len counts the servers.
func (h *hosts) Len() int { return len(h.servers) }

// Connected notes a success.
func (h *hosts) Connected() { h.tried = 0 }

// Next names the server to try. What it returns besides makes the library wait, and
// notice that it was closed.
func (h *hosts) Next() (string, bool) {
	if round := h.tried / len(h.servers); round > 0 && h.tried%len(h.servers) == 0 {
		pause := min(firstPause<<min(round-1, 10), lastPause)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-h.s.stop:
		}
	}
	h.tried++
	h.next = (h.next + 1) % len(h.servers)
	return h.servers[h.next], h.s.isClosing()
}

// dial connects to a server.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if s.isClosing() {
		return nil, zk.ErrClosing
	}
	limit := time.Now().Add(handshakeLimit)
	c, err := (&net.Dialer{Timeout: timeout}).Dial(network, address)
	if err == nil && s.b.opts.TLS != nil {
		c, err = s.encrypt(c, address, limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialErr = err; err != nil {
		return nil, err
	}
	s.wire = &wire{Conn: c, s: s, limit: limit}
	return s.wire, nil
}

// encrypt shakes hands for TLS.
func (s *session) encrypt(c net.Conn, address string, limit time.Time) (net.Conn, error) {
	config := s.b.opts.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	encrypted := tls.Client(c, config)
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	if err := encrypted.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return encrypted, nil
}

// connected takes in the server's greeting. Another session than ours, or none, means
// that ours has ended.
func (s *session) connected(sent boottime.Instant, granted time.Duration, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 && id != 0 {
		s.id = id
		close(s.greeted)
	}
	if id == 0 || id != s.id {
		s.expire()
		return
	}
	s.clock.connected(sent, granted)
}

func (s *session) heard(sent boottime.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.heard(sent)
}

// expire notes the end of the session; s.mu is held.
func (s *session) expire() {
	if s.over {
		return
	}
	s.over = true
	close(s.gone)
	s.finish()
	s.wake()
	go s.conn.Close() // lest the library go on with a new one
}

// finish notes that we have done with the session; s.mu is held.
func (s *session) finish() {
	if !s.closing {
		s.closing = true
		close(s.stop)
	}
}

// event is called by the library for each change of its state, and each watch that fires.
func (s *session) event(e zk.Event) {
	s.mu.Lock()
	delete(s.watched, e.Path)
	s.mu.Unlock()
	if e.Type == zk.EventSession {
		s.mu.Lock()
		switch e.State {
		case zk.StateHasSession:
			s.up = !s.over
		case zk.StateExpired:
			s.expire()
		case zk.StateDisconnected:
			s.up = false
		default: // of the TCP connection only
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
	s.wake()
}

func (s *session) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// isUp tells whether a server answers; if not, the error may say why.
func (s *session) isUp() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up, s.dialErr
}

// close ends the session on the server, with all that hangs on it.
func (s *session) close() {
	s.mu.Lock()
	up := s.up
	s.finish()
	s.mu.Unlock()
	if up {
		s.conn.Close()
	}
	s.drop()
}

// abandon leaves the session to end by itself.
func (s *session) abandon() {
	s.mu.Lock()
	s.finish()
	s.mu.Unlock()
	s.drop()
}

// drop ends the connection, and the library's work with it. The library would wait for
// an answer that cannot come; we do not.
func (s *session) drop() {
	s.cut()
	go s.conn.Close()
}

// cut ends the connection.
func (s *session) cut() {
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// granted is the session's timeout; it waits until that is known.
func (s *session) granted(ctx context.Context) (time.Duration, error) {
	select {
	case <-s.greeted:
	case <-s.gone:
		return 0, s.b.translate(zk.ErrSessionExpired, nil)
	case <-ctx.Done():
		_, why := s.isUp()
		return 0, s.b.noAnswer(why, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.granted, nil
}

// lease is what an acknowledged write of this session that was sent then proves.
func (s *session) lease(sent boottime.Instant) backend.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.wrote(sent)
	return s.clock.lease(sent)
}

// call makes a request. It returns when ctx ends, which the library does not heed: an
// error means that the outcome is unknown, unless the server sent it.
func call[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if s.isOver() {
		return none, s.b.translate(zk.ErrSessionExpired, nil)
	}
	done := make(chan result, 1)
	go func() {
		if <-s.introduced; s.refused != nil {
			done <- result{none, s.refused}
			return
		}
		v, err := request(s.conn)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		if r.err == nil {
			return r.value, nil
		}
		if errors.As(r.err, new(*opError)) {
			return none, r.err
		}
		if s.isOver() && !answered(r.err) {
			r.err = zk.ErrSessionExpired
		}
		_, why := s.isUp()
		return none, s.b.translate(r.err, why)
	case <-s.gone:
		return none, s.b.translate(zk.ErrSessionExpired, nil)
	case <-ctx.Done():
		up, why := s.isUp()
		if up {
			why = nil
		}
		return none, s.b.noAnswer(why, context.Cause(ctx))
	}
}

// do makes a request that returns nothing.
func do(ctx context.Context, s *session, request func(*zk.Conn) error) error {
	_, err := call(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, request(c) })
	return err
}

// watch makes a request that sets a watch on a path.
func watch[T any](ctx context.Context, s *session, path string, request func(*zk.Conn) (T, error)) (T, error) {
	return call(ctx, s, func(c *zk.Conn) (T, error) {
		s.mu.Lock()
		s.watched[path] = true
		s.mu.Unlock()
		v, err := request(c)
		if err != nil {
			s.mu.Lock()
			delete(s.watched, path)
			s.mu.Unlock()
		}
		return v, err
	})
}

// watches tells whether the library watches anything.
func (s *session) watches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watched) > 0
}

// expired tells whether the session is over for which the request was made.
func expired(err error) bool { return errors.Is(err, zk.ErrSessionExpired) }
