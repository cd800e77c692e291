package zookeeper

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

// frame is what a server sends, with so many bytes after the first 16.
func frame(first, second uint32, third uint64, more int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+more))
	b = binary.BigEndian.AppendUint32(b, first)
	b = binary.BigEndian.AppendUint32(b, second)
	b = binary.BigEndian.AppendUint64(b, third)
	return append(b, make([]byte, more)...)
}

// TestWireReadsAlong feeds a conversation in pieces of every size.
func TestWireReadsAlong(t *testing.T) {
	var talk []byte
	for _, f := range [][]byte{
		frame(0, 10_000, 0x1234, 21), // the greeting: 10 s
		frame(1, 0, 0, 0),            // answers the second frame
		frame(0xFFFFFFFF, 0, 0, 30),  // a watch fires
		frame(0xFFFFFFFE, 0, 0, 0),   // answers a ping, the third
		frame(2, 0, 0, 5000),         // answers the fourth
	} {
		talk = append(talk, f...)
	}
	for size := 1; size <= len(talk); size = max(size+1, size*5/4) {
		now := at(0)
		b := &Backend{clock: func() boottime.Instant { return now }}
		s := &session{b: b, greeted: make(chan struct{}), gone: make(chan struct{}), stop: make(chan struct{})}
		w := &wire{s: s}
		for i := range 4 {
			w.sent = append(w.sent, at(float64(i)))
		}
		for from := 0; from < len(talk); from += size {
			w.scan(talk[from:min(from+size, len(talk))])
		}
		if s.id != 0x1234 || s.clock.granted != 10*time.Second || s.clock.base != at(0) {
			t.Fatalf("pieces of %d: session %x, granted %v, from %v", size, s.id, s.clock.granted, s.clock.base)
		}
		if len(w.sent) != 0 || len(s.clock.answered) != 3 || s.clock.answered[2] != at(3) {
			t.Fatalf("pieces of %d: answered %v, not answered %v", size, s.clock.answered, w.sent)
		}
	}
}

func FuzzWire(f *testing.F) {
	f.Add(frame(0, 1000, 1, 3), 2)
	f.Add(frame(0xFFFFFFFF, 0, 0, 0), 1)
	f.Add([]byte{0, 0, 0, 1, 9, 9, 9}, 3)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size < 1 {
			return
		}
		b := &Backend{clock: boottime.Now}
		s := &session{b: b, id: 1, greeted: make(chan struct{}), gone: make(chan struct{}), stop: make(chan struct{}), over: true}
		w := &wire{s: s, sent: make([]boottime.Instant, 3)}
		for ; len(data) > size; data = data[size:] {
			w.scan(data[:size])
		}
		w.scan(data)
		if len(w.frame) >= headSize {
			t.Errorf("%d bytes are kept", len(w.frame))
		}
	})
}

// TestWireHoldsAnswersUntilWatchesAreSet: the library reads which answer was its latest
// while it sets its watches again, so none may come in before.
func TestWireHoldsAnswersUntilWatchesAreSet(t *testing.T) {
	for _, end := range []struct {
		name string
		by   func(*wire)
	}{
		{"watches set", func(w *wire) { w.Write(frame(7, 101, 0, 0)) }},
		{"closed", func(w *wire) { w.Close() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			go io.Copy(io.Discard, theirs)
			s := &session{b: &Backend{clock: boottime.Now}, greeted: make(chan struct{}), gone: make(chan struct{}), stop: make(chan struct{})}
			s.watched = map[string]bool{"/x": true}
			w := &wire{Conn: ours, s: s, sent: make([]boottime.Instant, 1)}
			w.scan(frame(0, 10_000, 0x1234, 21))
			read := make(chan struct{})
			go func() { w.Read(make([]byte, 4)); close(read) }()
			w.Write(frame(6, 4, 0, 0)) // another request lets nothing in
			w.mu.Lock()
			holds := w.watched != nil
			w.mu.Unlock()
			if !holds {
				t.Error("answers come in before the watches are set")
			}
			end.by(w)
			w.mu.Lock()
			holds = w.watched != nil
			w.mu.Unlock()
			if holds {
				t.Error("answers are still held back")
			}
			ours.Close()
			<-read
		})
	}
}
