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
	out    *bufio.Reader
	w      *bufio.Writer
	errors *tailWriter
	limits Limits
	cancel context.CancelFunc
	// timeout bounds how long one answer may take.
	timeout time.Duration
}

// StartExec runs a command in a shell. timeout bounds one answer; 0 means 30 s.
func StartExec(ctx context.Context, command string, longest int, timeout time.Duration) (*Exec, error) {
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &Exec{cancel: cancel, timeout: timeout, limits: Limits{Longest: longest}, errors: &tailWriter{}}
	// exec: the shell is replaced, so that ending it ends the command.
	e.cmd = exec.CommandContext(ctx, "/bin/sh", "-c", "exec "+command)
	e.cmd.WaitDelay = time.Second
	e.cmd.Stderr = e.errors
	var err error
	if e.in, err = e.cmd.StdinPipe(); err == nil {
		var out io.ReadCloser
		if out, err = e.cmd.StdoutPipe(); err == nil {
			e.out = bufio.NewReaderSize(out, 1<<16)
			e.w = bufio.NewWriterSize(e.in, 1<<16)
			err = e.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("target exec:%s: %w", command, err)
	}
	return e, nil
}

// Send implements Target.
func (e *Exec) Send(frame []byte) error {
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

// Collect implements Target. The command puts frames out while it takes others in, so both are done at once.
func (e *Exec) Collect(int) (got [][]byte, err error) {
	sent := make(chan error, 1)
	go func() {
		_, err := e.w.Write(make([]byte, 4))
		if err == nil {
			err = e.w.Flush()
		}
		sent <- err
	}()
	late := time.AfterFunc(e.timeout, e.cancel)
	defer late.Stop()
	for {
		var h [4]byte
		if _, err := io.ReadFull(e.out, h[:]); err != nil {
			return got, e.failed(err)
		}
		n := binary.BigEndian.Uint32(h[:])
		if n == 0 {
			if err := <-sent; err != nil {
				return got, e.failed(err)
			}
			return got, nil
		}
		if n > maxPipeFrame {
			return got, e.failed(fmt.Errorf("it sends a frame of %d bytes", n))
		}
		f := make([]byte, n)
		if _, err := io.ReadFull(e.out, f); err != nil {
			return got, e.failed(err)
		}
		got = append(got, f)
	}
}

func (e *Exec) failed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the command ended, or did not answer in time")
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
	if err := e.cmd.Wait(); err != nil {
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
