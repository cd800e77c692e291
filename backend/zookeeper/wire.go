package zookeeper

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

// wire is a connection to a server, between the client library and the network. It reads
// along, since the library does not tell what the server granted, nor when a frame that
// was answered was sent; and it bounds the handshake, which the library does not.
type wire struct {
	net.Conn
	s     *session
	limit time.Time // of the handshake

	mu      sync.Mutex
	sent    []boottime.Instant // of the frames that wait for an answer
	greeted bool
	frame   []byte // the beginning of the frame that is being read
	rest    int    // of it, not to be looked at

	watched chan struct{} // closed when the session's watches were set again; nil: it had none
	isShut  bool
}

// Write sends one frame; the library writes each in one piece.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.sent = append(w.sent, w.s.b.clock())
	if w.greeted && isSetWatches(b) {
		w.open()
	}
	w.mu.Unlock()
	return w.Conn.Write(b)
}

// Read receives a piece of a frame. The first after the greeting waits until the library
// has set its watches again: it asks for what changed after the latest answer, and reads
// without a lock which that was.
func (w *wire) Read(b []byte) (int, error) {
	w.mu.Lock()
	watched := w.watched
	if len(w.frame) > 0 || w.rest > 0 {
		watched = nil
	}
	w.mu.Unlock()
	if watched != nil {
		select {
		case <-watched:
		case <-time.After(handshakeLimit):
		}
	}
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scan(b[:n])
	return n, err
}

// Close ends the connection.
func (w *wire) Close() error {
	w.mu.Lock()
	w.isShut = true
	w.open()
	w.mu.Unlock()
	return w.Conn.Close()
}

// open lets the answers in; w.mu is held.
func (w *wire) open() {
	if w.watched != nil {
		close(w.watched)
		w.watched = nil
	}
}

// isSetWatches tells whether a request is the one that sets watches again: length and
// number come before the kind.
func isSetWatches(frame []byte) bool {
	const kind = 101
	return len(frame) >= 12 && binary.BigEndian.Uint32(frame[8:]) == kind
}

// SetReadDeadline keeps the handshake within its limit.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.greeted && (t.IsZero() || t.After(w.limit)) {
		t = w.limit
	}
	return w.Conn.SetReadDeadline(t)
}

// headSize is what we need of a frame: its length, and the 16 bytes that an answer and
// a greeting at least have.
const headSize = 4 + 16

// scan looks at what was received.
func (w *wire) scan(b []byte) {
	for len(b) > 0 {
		if skip := min(w.rest, len(b)); skip > 0 {
			w.rest -= skip
			b = b[skip:]
			continue
		}
		n := min(headSize-len(w.frame), len(b))
		w.frame = append(w.frame, b[:n]...)
		b = b[n:]
		if len(w.frame) == headSize {
			w.rest = max(0, int(binary.BigEndian.Uint32(w.frame))-(headSize-4))
			w.received(w.frame[4:])
			w.frame = w.frame[:0]
		}
	}
}

// notification is the number of frames that answer nothing.
const notification = -1

// received takes in the beginning of a frame. Answers come in the order of the requests.
func (w *wire) received(body []byte) {
	if int32(binary.BigEndian.Uint32(body)) == notification && w.greeted || len(w.sent) == 0 {
		return
	}
	sent := w.sent[0]
	w.sent = w.sent[1:]
	if w.greeted {
		w.s.heard(sent)
		return
	}
	w.greeted = true
	if w.s.watches() && !w.isShut {
		w.watched = make(chan struct{})
	}
	granted := time.Duration(binary.BigEndian.Uint32(body[4:])) * time.Millisecond
	w.s.connected(sent, granted, int64(binary.BigEndian.Uint64(body[8:])))
}
