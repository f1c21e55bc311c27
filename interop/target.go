package interop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Target is a card under test, on one wire with all workers.
type Target interface {
	// Send puts a frame on the wire to the card. It keeps nothing of it.
	Send(frame []byte) error
	// Collect returns what the card has sent since the last Collect, in order. want is how many frames are expected: a
	// target that cannot know that the card is done waits for them, and then until nothing more comes.
	Collect(want int) ([][]byte, error)
	// Limits tell what the target can do.
	Limits() Limits
	Close() error
}

// Limits are what a target can do.
type Limits struct {
	// Longest is the longest frame in bytes; 0: any.
	Longest int
	// Clock is true when time passes at the target; a simulator that only answers has none.
	Clock bool
}

// maxPipeFrame bounds what a target may claim to send.
const maxPipeFrame = 1 << 16

// Exec is a target behind the standard input and output of a command. Each frame is its length in 4 bytes, big endian,
// and its bytes, both ways. Length zero from the kit asks for everything that the frames before caused; the command
// answers with length zero when it has put all of it out. What the command writes to standard error is shown on errors.
type Exec struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	w      *bufio.Writer
	errors *tailWriter
	limits Limits
	ctx    context.Context // ends with the target
	cancel context.CancelFunc
	// answers are what the command has put out, up to a length of zero each. They are read all the time: a command that
	// cannot put a frame out takes none in either.
	answers chan answer
	// timeout bounds how long one answer may take, and how long one frame may wait to be taken.
	timeout time.Duration
	late    atomic.Bool // it took longer
	wait    func() error
}

// answer is the frames before a length of zero, or before an error.
type answer struct {
	frames [][]byte
	err    error
}

// StartExec runs a command in a shell. timeout bounds one answer; 0 means 30 s.
func StartExec(ctx context.Context, command string, longest int, timeout time.Duration) (*Exec, error) {
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &Exec{ctx: ctx, cancel: cancel, timeout: timeout, limits: Limits{Longest: longest}, errors: &tailWriter{}, answers: make(chan answer)}
	// exec: the shell is replaced, so that ending it ends the command.
	e.cmd = exec.CommandContext(ctx, "/bin/sh", "-c", "exec "+command)
	e.cmd.WaitDelay = time.Second
	e.cmd.Stderr = e.errors
	var err error
	var out io.ReadCloser
	if e.in, err = e.cmd.StdinPipe(); err == nil {
		if out, err = e.cmd.StdoutPipe(); err == nil {
			e.w = bufio.NewWriterSize(e.in, 1<<16)
			err = e.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("target exec:%s: %w", command, err)
	}
	e.wait = sync.OnceValue(e.cmd.Wait)
	go e.read(bufio.NewReaderSize(out, 1<<16))
	return e, nil
}

// read gives answers until one is an error.
func (e *Exec) read(out io.Reader) {
	for {
		a := readAnswer(out)
		select {
		case e.answers <- a:
		case <-e.ctx.Done():
			return
		}
		if a.err != nil {
			return
		}
	}
}

func readAnswer(out io.Reader) (a answer) {
	for {
		var h [4]byte
		if _, a.err = io.ReadFull(out, h[:]); a.err != nil {
			return a
		}
		n := binary.BigEndian.Uint32(h[:])
		if n == 0 {
			return a
		}
		if n > maxPipeFrame {
			a.err = fmt.Errorf("it sends a frame of %d bytes", n)
			return a
		}
		f := make([]byte, n)
		if _, a.err = io.ReadFull(out, f); a.err != nil {
			return a
		}
		a.frames = append(a.frames, f)
	}
}

// Send implements Target.
func (e *Exec) Send(frame []byte) error {
	defer time.AfterFunc(e.timeout, e.giveUp).Stop()
	var h [4]byte
	binary.BigEndian.PutUint32(h[:], uint32(len(frame)))
	if _, err := e.w.Write(h[:]); err != nil {
		return e.failed(err)
	}
	if _, err := e.w.Write(frame); err != nil {
		return e.failed(err)
	}
	return nil
}

// Collect implements Target.
func (e *Exec) Collect(int) (got [][]byte, err error) {
	defer time.AfterFunc(e.timeout, e.giveUp).Stop()
	if _, err = e.w.Write(make([]byte, 4)); err == nil {
		err = e.w.Flush()
	}
	if err != nil {
		return nil, e.failed(err)
	}
	select {
	case a := <-e.answers:
		if a.err != nil {
			return a.frames, e.failed(a.err)
		}
		return a.frames, nil
	case <-e.ctx.Done():
		return nil, e.failed(e.ctx.Err())
	}
}

// giveUp ends a command that is too slow.
func (e *Exec) giveUp() {
	e.late.Store(true)
	e.cancel()
}

func (e *Exec) failed(err error) error {
	switch {
	case e.late.Load():
		err = fmt.Errorf("no answer within %v", e.timeout)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE):
		err = errors.New("the command ended without an answer")
		defer time.AfterFunc(time.Second, e.cancel).Stop()
		if state := e.wait(); state != nil { // all that it says has come
			err = fmt.Errorf("%w, %w", err, state)
		}
	}
	if t := e.errors.String(); t != "" {
		err = fmt.Errorf("%w; it says: %s", err, t)
	}
	return fmt.Errorf("target exec: %w", err)
}

// Limits implements Target.
func (e *Exec) Limits() Limits { return e.limits }

// Close ends the command: at the end of its input it ends by itself, or is ended.
func (e *Exec) Close() error {
	_ = e.in.Close()
	late := time.AfterFunc(2*time.Second, e.cancel)
	defer late.Stop()
	defer e.cancel()
	if err := e.wait(); err != nil {
		return e.failed(fmt.Errorf("at the end: %w", err))
	}
	return nil
}

// tailWriter keeps the end of what is written to it.
type tailWriter struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-1000):]
	return len(b), nil
}

func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// OpenTarget opens what a word names: mem, exec:COMMAND, or an interface.
func OpenTarget(ctx context.Context, word string, o *Options, s *Suite) (Target, error) {
	switch command, isExec := strings.CutPrefix(word, "exec:"); {
	case o.Call != "" && (word == "mem" || isExec):
		return nil, fmt.Errorf("target %s: a call's command is for a card on an interface; gradnic in memory makes calls by itself, and behind a pipe there is no time", word)
	case word == "mem" && s.Layout == "accl":
		return OpenACCLMem(o), nil
	case word == "mem" && s.Layout == "ring":
		return OpenRingMem(ctx, o)
	case word == "mem":
		return OpenMem(ctx, o, s)
	case isExec:
		return StartExec(ctx, command, o.Longest, o.Timeout)
	case word == "":
		return nil, errors.New("target: mem, exec:COMMAND, or an interface")
	}
	t, err := OpenInterface(word, o)
	if err == nil && o.Call != "" {
		return &called{Target: t, ctx: ctx, command: o.Call}, nil
	}
	return t, err
}
