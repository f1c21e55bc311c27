package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/host/shm"
)

// Defaults of Options.
const (
	DefaultArena = 64 << 20
	DefaultPiece = 1 << 20
)

// Options are a client's.
type Options struct {
	// Arena is the bytes of shared memory for buffers, at least 4 KiB; 0: DefaultArena.
	Arena int64
	// Piece is how many elements go in one request: longer operations are cut. It must be the same on all nodes.
	// 0: DefaultPiece.
	Piece int
}

// The errors of operations.
var (
	// ErrGone says that the NIC's process has ended or closed the connection. What was under way is undefined.
	ErrGone = errors.New("host: the NIC is gone: gradnic ring has ended, or ended the connection for a reason that is on its standard error")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("host: the client is closed")
)

// Places is how many requests are outstanding at most; what goes beyond waits in the client.
const Places = shm.Places

// Stats is what an operation took, summed over its requests.
type Stats = shm.Stats

// Client is a process's end. Its methods may be called from any goroutine; operations are carried out in the order in
// which they were started.
type Client struct {
	conn     *net.UnixConn
	memory   *shm.Memory
	doorbell *os.File
	done     *os.File
	piece    int
	wg       sync.WaitGroup

	talk    sync.Mutex // one question at a time
	answers chan shm.Answer

	mu     sync.Mutex
	arena  *arena
	queue  []*Op // with pieces to hand in
	change *sync.Cond
	next   uint32 // requests posted
	places [shm.Places]*part
	open   int
	lent   int   // allocations that are not freed
	shut   bool  // released, but for the memory if it is lent
	err    error // why there will be no more
}

// Op is an operation under way.
type Op struct {
	c        *Client
	data     []float32
	weights  []float32
	rate     float32
	codec    string
	deadline time.Duration
	at       int  // elements handed in
	begun    bool // a part was: an operation of no elements has one too
	open     int  // parts handed in and not done
	copying  int  // copies under way between Data or Weights and shared memory
	stats    Stats
	err      error
	over     bool
	done     chan struct{}
}

// part is one request of an operation.
type part struct {
	op               *Op
	lo, hi           int
	data, weights    uint64 // offsets in the arena
	stagedD, stagedW bool
}

// Request is what an operation does.
type Request struct {
	// Data is replaced by the sum over all nodes. What lies in the arena (Alloc) is summed where it is, other memory is
	// copied there and back. With no elements the operation only waits until all nodes have got there.
	Data []float32
	// Weights, if not nil, and LearningRate: the new weights w - LearningRate * sum are given in Data and in Weights.
	Weights      []float32
	LearningRate float32
	// Codec is the format between NICs, "none", "bfp16", "bfp16-intel", "fp16" or "bf16"; "": "bfp16".
	Codec string
	// Deadline is how long each request may take, not counting those before it; 0: the NIC's own.
	Deadline time.Duration
}

// Dial connects to the NIC that listens on path and brings it the shared memory. The context bounds the connecting only.
func Dial(ctx context.Context, path string, o Options) (_ *Client, err error) {
	if o.Arena == 0 {
		o.Arena = DefaultArena
	}
	if o.Piece == 0 {
		o.Piece = DefaultPiece
	}
	if o.Arena < 4096 || o.Piece < 1 {
		return nil, fmt.Errorf("host: an arena of %d bytes, pieces of %d elements: at least 4096 and 1", o.Arena, o.Piece)
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("host: connect to the NIC: %w%s", err, why(path, err))
	}
	c := &Client{conn: nc.(*net.UnixConn), piece: o.Piece, arena: newArena(uint64(o.Arena)), answers: make(chan shm.Answer, 1)}
	c.change = sync.NewCond(&c.mu)
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	fds, err := c.makeMemory(int(shm.ControlBytes + o.Arena))
	if err != nil {
		return nil, fmt.Errorf("host: shared memory: %w", err)
	}
	hello := shm.Hello{Version: shm.Version, Size: uint64(shm.ControlBytes + o.Arena), PID: os.Getpid()}
	if t, ok := ctx.Deadline(); ok {
		hello.WaitMS = max(time.Until(t).Milliseconds(), 1)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := shm.Send(c.conn, &hello, fds); err != nil {
		return nil, fmt.Errorf("host: %w", errors.Join(ctx.Err(), err))
	}
	_ = unix.Close(fds[shm.FDMemory])
	var a shm.Answer
	got, err := shm.Receive(c.conn, &a)
	shm.CloseAll(got)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("host: the NIC at %s has not answered: %w", path, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("host: the NIC does not answer: %w", err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("host: the NIC refuses: %s", a.Error)
	}
	if !stop() { // the deadline may be set any moment
		return nil, fmt.Errorf("host: connect to the NIC: %w", context.Cause(ctx))
	}
	c.wg.Add(3)
	go c.listen()
	go c.post()
	go c.reap()
	return c, nil
}

// makeMemory makes what is passed to the NIC.
func (c *Client) makeMemory(size int) (fds []int, err error) {
	defer func() {
		if err != nil {
			shm.CloseAll(fds)
		}
	}()
	fd, err := unix.MemfdCreate("gradnic-host", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	fds = []int{fd}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return fds, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fds, err
	}
	if c.memory, err = shm.Map(fd, size); err != nil {
		return fds, err
	}
	shm.PutHeader(c.memory.Control, uint64(size))
	for range 2 {
		e, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fds, err
		}
		fds = append(fds, e)
	}
	c.doorbell, c.done = os.NewFile(uintptr(fds[shm.FDDoorbell]), "doorbell"), os.NewFile(uintptr(fds[shm.FDDone]), "done")
	return fds, nil
}

// release gives back what there is, but not memory that is lent.
func (c *Client) release() {
	_ = c.conn.Close()
	if c.doorbell != nil {
		_ = c.doorbell.Close()
	}
	if c.done != nil {
		_ = c.done.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	if c.memory != nil && c.lent == 0 {
		_ = c.memory.Unmap()
	}
}

// Close waits for what is under way and ends the connection. What Alloc gave stays valid until it is freed. Close is
// idempotent.
func (c *Client) Close() error { return c.close(true) }

// Abort is Close without waiting: operations that are under way end with ErrClosed.
func (c *Client) Abort() error { return c.close(false) }

func (c *Client) close(wait bool) error {
	if wait {
		c.Flush()
	}
	c.mu.Lock()
	if errors.Is(c.err, ErrClosed) {
		c.mu.Unlock()
		return nil
	}
	c.end(ErrClosed)
	c.mu.Unlock()
	_ = c.conn.CloseWrite() // a process that was forked may have the socket too
	_ = c.conn.Close()
	_ = c.done.Close()
	c.wg.Wait()
	c.release()
	return nil
}

// Flush waits until nothing is under way.
func (c *Client) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.open > 0 || len(c.queue) > 0) && c.err == nil {
		c.change.Wait()
	}
}

// Descriptor is the connection's file descriptor: what a process that was forked must close, so that the NIC notices the
// end of the one that it serves. ok is false when the client is closed.
func (c *Client) Descriptor() (fd int, ok bool) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(n uintptr) { fd = int(n) })
	return fd, err == nil
}

// Alloc gives n elements of the arena, at the start of a cache line. Their values are undefined.
func (c *Client) Alloc(n int) ([]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case n < 0 || n > math.MaxInt/8:
		return nil, fmt.Errorf("host: %d elements", n)
	case n == 0:
		return nil, nil
	}
	at, err := c.arena.take(4 * uint64(n))
	if err != nil {
		return nil, err
	}
	c.lent++
	return c.memory.Floats(at, uint64(n)), nil
}

// Free gives back what Alloc gave, once no operation uses it; of the slice only the start counts. It may be called after
// Close.
func (c *Client) Free(f []float32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(f) == 0 {
		return nil
	}
	at, ok := c.memory.OffsetOf(f[:1])
	if !ok || !c.arena.give(at) {
		return errors.New("host: the slice was not allocated from the arena, or was freed already")
	}
	if c.lent--; c.lent == 0 && c.shut {
		return c.memory.Unmap()
	}
	return nil
}

// Lent is how many allocations are not freed.
func (c *Client) Lent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lent
}

// AllReduce carries out an operation. The context ends the wait, not the operation: the buffers are the NIC's until it is
// done, so after an error of the context they must not be used until Wait of another operation has returned.
func (c *Client) AllReduce(ctx context.Context, r Request) (Stats, error) {
	op, err := c.Start(r)
	if err != nil {
		return Stats{}, err
	}
	return op.Wait(ctx)
}

// Start begins an operation. It does not block.
func (c *Client) Start(r Request) (*Op, error) {
	if r.Weights != nil && len(r.Weights) != len(r.Data) {
		return nil, fmt.Errorf("host: %d weights for %d gradients", len(r.Weights), len(r.Data))
	}
	if err := (&shm.Request{Codec: r.Codec}).Put(make([]byte, shm.RequestBytes)); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	op := &Op{c: c, data: r.Data, weights: r.Weights, rate: r.LearningRate, codec: r.Codec, deadline: r.Deadline, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.queue = append(c.queue, op)
	c.change.Broadcast()
	return op, nil
}

// Wait returns when the operation has ended, or the context.
func (o *Op) Wait(ctx context.Context) (Stats, error) {
	select {
	case <-o.done:
		return o.stats, o.err
	default:
	}
	select {
	case <-o.done:
		return o.stats, o.err
	case <-ctx.Done():
		return Stats{}, fmt.Errorf("host: wait: %w", ctx.Err())
	}
}

// Status is what the NIC says of the ring.
type Status struct {
	Node        uint16   // this one
	Nodes       []uint16 // of the ring, in its order
	Phase       string   // forming, formed or failed
	Generation  uint32
	Failure     string // why it failed, or while forming why a neighbour takes no part
	Outstanding int
}

// Status asks the NIC.
func (c *Client) Status() (Status, error) { return c.question(&shm.Ask{Op: "status"}) }

// Reform has the node form the ring again, of these nodes; all of them must be told.
func (c *Client) Reform(nodes []uint16) (Status, error) {
	return c.question(&shm.Ask{Op: "reform", Nodes: nodes})
}

func (c *Client) question(q *shm.Ask) (Status, error) {
	c.talk.Lock()
	defer c.talk.Unlock()
	if err := shm.Send(c.conn, q, nil); err != nil {
		return Status{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	a, ok := <-c.answers
	switch {
	case !ok:
		return Status{}, ErrGone
	case a.Error != "":
		return Status{}, fmt.Errorf("host: %s: %s", q.Op, a.Error)
	}
	return Status{Node: a.Node, Nodes: a.Nodes, Phase: a.Phase, Generation: a.Generation, Failure: a.Failure, Outstanding: a.Outstanding}, nil
}
