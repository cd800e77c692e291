package consul

import (
	"encoding/json"
	"time"

	"github.com/dlock/dlock/backend"
)

// record is what a contender tells of itself. It is the value of its key in the line,
// and of .lock while it holds that alone. Times of day are for people to read.
type record struct {
	Token string        `json:"token"`
	Mode  backend.Mode  `json:"mode"`
	Owner backend.Owner `json:"owner"`
	TTL   int64         `json:"ttl"`   // of the session, ms
	Delay int64         `json:"delay"` // its lock-delay, ms
	Since int64         `json:"since"` // Unix ms

	Held    bool   `json:"held,omitempty"`  // in the line: it has passed the gate; of no meaning for exclusive
	Fence   uint64 `json:"fence,omitempty"` // 0: the index of the key's last change
	Until   int64  `json:"until,omitempty"` // Unix ms; 0: it is renewed
	Tail    bool   `json:"tail,omitempty"`
	Revoked bool   `json:"revoked,omitempty"`
}

func (r record) ttl() time.Duration   { return backend.Millis(r.TTL) }
func (r record) delay() time.Duration { return backend.Millis(r.Delay) }

// group is the value of .lock while shared holds have it. Its session is renewed by all.
type group struct {
	Shared  bool              `json:"shared"`
	TTL     int64             `json:"ttl"`
	Delay   int64             `json:"delay"`
	Members map[string]member `json:"members"`
	Settle  int64             `json:"settle,omitempty"` // the lock-delay of members that ended uncleanly: it has to follow
	Ended   bool              `json:"ended,omitempty"`  // its session is being destroyed
}

// member is what a shared hold needs of the group's session.
type member struct {
	TTL   int64 `json:"ttl"`
	Delay int64 `json:"delay"`
}

// wants is what the group's session has to be, for all members and those that were.
func (g group) wants() (ttl, delay time.Duration) {
	delay = backend.Millis(g.Settle)
	for _, m := range g.Members {
		ttl, delay = max(ttl, backend.Millis(m.TTL)), max(delay, backend.Millis(m.Delay))
	}
	return ttl, delay
}

// semaphore is the value of .lock as api.Semaphore has it.
type semaphore struct {
	Limit   int
	Holders map[string]bool
}

func encodeJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // none of them can fail
	}
	return data
}

func wallMillis() int64 { return time.Now().UnixMilli() }
