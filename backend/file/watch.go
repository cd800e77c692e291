package file

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch tells when a lock's record was replaced.
type watch struct {
	changed chan struct{} // holds one mark at most; several changes may make one
	watcher *fsnotify.Watcher
}

// newWatch begins to watch. Where the system has no watch left to give, it tells
// nothing: renewals, expiries and the kernel's locks are looked at all the same.
func newWatch(state *dir) *watch {
	w := &watch{changed: make(chan struct{}, 1)}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return w
	}
	if err := watcher.Add(state.Name()); err != nil {
		watcher.Close()
		return w
	}
	w.watcher = watcher
	go w.relay()
	return w
}

// mark says that something may have changed.
func (w *watch) mark() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// relay ends when the watch is closed.
func (w *watch) relay() {
	for {
		select {
		case event, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			if filepath.Base(event.Name) != recordName {
				continue
			}
		case _, ok := <-w.watcher.Errors: // such as an overflow: look for ourselves
			if !ok {
				return
			}
		}
		w.mark()
	}
}

// close ends the watch, behind the caller's back: the kernel may take 16 ms for it.
func (w *watch) close() {
	if w.watcher != nil {
		go w.watcher.Close()
	}
}
