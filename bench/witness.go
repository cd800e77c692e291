package bench

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
)

// witness sees who is inside a critical section, by means of its own.
type witness struct {
	mu     sync.Mutex
	inside int
	last   uint64 // the largest fence so far
	tally  Tally
}

// Tally is what was seen of the critical sections.
type Tally struct {
	Holds       int `json:"holds"`
	Overlaps    int `json:"overlaps"`    // somebody was inside already
	Regressions int `json:"regressions"` // the fence was not larger than all before it
}

func (w *witness) enter(fence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.Holds++
	if w.inside++; w.inside > 1 {
		w.tally.Overlaps++
	}
	if fence <= w.last {
		w.tally.Regressions++
	}
	w.last = max(w.last, fence)
}

func (w *witness) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
}

// section is the shell line that is a critical section of a process: it tells the log that
// is its $0 of its coming and going. A shell writes such a line in one piece, at the end.
const section = `echo in "$DLOCK_FENCE" >>"$0"; echo out "$DLOCK_FENCE" >>"$0"`

// read lets the witness see what sections have written.
func (w *witness) read(log string) error {
	f, err := os.Open(log)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		what, text, _ := strings.Cut(lines.Text(), " ")
		if what == "out" {
			w.leave()
			continue
		}
		fence, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return err
		}
		w.enter(fence)
	}
	return lines.Err()
}
