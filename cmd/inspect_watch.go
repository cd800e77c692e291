package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dlock/dlock/backend"
)

// watcher looks again and again, and shows what it sees.
type watcher struct {
	*app
	opts *inspectOptions
	b    backend.Backend

	terminal bool // it redraws a terminal in place
	drawing  bool // the terminal shows its other screen
	last     view // that was good
	latest   view
}

// What a terminal does (xterm, ECMA-48): show another screen without a cursor, and
// return to the first.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watch shows the locks until a signal comes.
func (a *app) watch(o *inspectOptions, b backend.Backend) error {
	w := &watcher{app: a, opts: o, b: b}
	w.terminal = o.format == formatText && o.output == "" && isTerminal(a.stdout) && os.Getenv("TERM") != "dumb"
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	if w.terminal {
		wanted = append(wanted, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH)
	}
	wanted = slices.DeleteFunc(wanted, signal.Ignored) // as by nohup(1)
	signals := make(chan os.Signal, 8)
	if len(wanted) > 0 { // none would mean all
		signal.Notify(signals, wanted...)
	}
	defer signal.Stop(signals)
	defer w.leave()
	return w.run(signals)
}

// run looks, and in between does what the signals say.
func (w *watcher) run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	looked := make(chan view, 1)
	look := func() { looked <- w.look(ctx, w.opts, w.b) }
	go look()
	next := time.NewTimer(time.Duration(w.opts.interval))
	defer next.Stop()
	first := true
	for {
		select {
		case v := <-looked:
			if first && v.err != nil {
				return v.err
			}
			first = false
			if err := w.show(v); err != nil {
				return err
			}
			next.Reset(time.Duration(w.opts.interval))
		case <-next.C:
			go look()
			next.Reset(time.Hour) // until it has looked
		case s := <-signals:
			if err := w.signalled(s.(syscall.Signal)); err != nil {
				return err
			}
		}
	}
}

// signalled does what a signal asks for; those that end the watch are its error.
func (w *watcher) signalled(sig syscall.Signal) error {
	switch sig {
	case syscall.SIGWINCH, syscall.SIGCONT:
		return w.draw()
	case syscall.SIGTSTP:
		w.leave()
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return &exitError{code: 128 + int(sig), die: dieOf(sig)}
}

// show shows a view. A service that fails is shown too, and looked at again.
func (w *watcher) show(v view) error {
	w.latest = v
	if v.err == nil {
		w.last = v
	}
	switch {
	case w.terminal:
		return w.draw()
	case w.opts.output != "":
		if err := w.emit(w.opts, v); err != nil {
			w.ui.warn("", "%v", err)
		}
		return nil
	case v.err != nil && w.opts.format == formatText:
		w.ui.warn("", "%v; looking again", v.err)
		return nil
	case w.opts.format == formatText:
		fmt.Fprintf(w.stdout, "%s\n", v.time.Format(time.DateTime))
		defer fmt.Fprintln(w.stdout)
	}
	return w.emit(w.opts, v)
}

// draw draws the terminal anew, over what it shows, so that nothing flickers.
func (w *watcher) draw() error {
	if w.latest.time.IsZero() {
		return nil // nothing has been seen yet
	}
	var b bytes.Buffer
	if !w.drawing {
		b.WriteString(enterScreen)
		w.drawing = true
	}
	b.WriteString(homeCursor)
	sc := w.screen()
	lines := w.lines(sc)
	if sc.rows > 0 && len(lines) > sc.rows {
		hidden := len(lines) - sc.rows + 1
		lines = append(lines[:sc.rows-1], fmt.Sprintf("… %d more lines; name the locks to see, or enlarge the window", hidden))
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clearLine + clip(line, sc.columns)) // cleared first: a full line would lose its end
	}
	b.WriteString(clearBelow)
	_, err := w.stdout.Write(b.Bytes())
	return err
}

// lines are what the terminal shows.
func (w *watcher) lines(sc screen) []string {
	v := w.latest
	lines := []string{fmt.Sprintf("%s  %s", v.time.Format(time.TimeOnly), safe(describeBackend(v.limits)))}
	if v.err != nil {
		lines = append(lines, sc.paint(red, "! "+safe(v.err.Error())), "as of "+w.last.time.Format(time.TimeOnly)+":")
		v = w.last
	}
	if len(w.opts.names) == 0 {
		return append(append(lines, summary(v.list), ""), tableLines(sc, v.list)...)
	}
	var cards bytes.Buffer
	_ = printCards(&cards, sc, v) // into memory
	return append(append(lines, ""), strings.Split(strings.TrimSuffix(cards.String(), "\n"), "\n")...)
}

// summary counts what a small window may not show.
func summary(list []backend.Status) string {
	held, waiting, odd := 0, 0, 0
	for _, s := range list {
		if len(s.Holders) > 0 {
			held++
		}
		waiting += len(s.Waiters)
		odd += len(problems(s))
	}
	return fmt.Sprintf("held: %d, waiting: %d, problems: %d", held, waiting, odd)
}

// leave gives the terminal back as it was.
func (w *watcher) leave() {
	if w.drawing {
		w.drawing = false
		_, _ = w.stdout.Write([]byte(leaveScreen))
	}
}

// clip cuts a line that may have styles to the columns of the terminal, so that it
// stays one line.
func clip(line string, columns int) string {
	if columns <= 0 {
		return line
	}
	var b strings.Builder
	n, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			if n += runeWidth(r); n > columns {
				continue // styles that follow still count
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
