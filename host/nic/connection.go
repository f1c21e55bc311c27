package nic

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/host/shm"
	"gradnic/service/ring"
)

// connection is a client that has the node.
type connection struct {
	node     *ring.Node
	conn     *net.UnixConn
	memory   *shm.Memory
	doorbell *os.File // the client rings it
	done     *os.File // we ring it
	told     chan struct{}
	quit     chan struct{}
	silent   chan struct{} // tell has ended
	over     atomic.Bool   // the node is closed
	log      *slog.Logger
	wg       sync.WaitGroup // take

	flying [shm.Places]atomic.Bool // a request in the place is not done

	mu    sync.Mutex
	open  int // requests that use the memory
	empty *sync.Cond
}

// end waits until no request uses the memory, and gives everything back.
func (k *connection) end() {
	close(k.quit)
	_ = k.doorbell.Close()
	k.wg.Wait()
	k.quiet()
	_ = k.done.Close()
	k.mu.Lock()
	for k.open > 0 {
		k.empty.Wait()
	}
	k.mu.Unlock()
	if err := k.memory.Unmap(); err != nil {
		k.log.Error("host: unmap a client's memory", "err", err)
	}
}

// quiet waits until tell has ended. A client may have made its event descriptor one that blocks, and filled it: reading
// it lets the write go on. Should a client fill it again each time, the goroutine is left behind: it has no memory of the
// client's.
func (k *connection) quiet() {
	for range 1000 {
		select {
		case <-k.silent:
			return
		case <-time.After(time.Millisecond):
			shm.Drain(k.done)
		}
	}
	k.log.Warn("host: a client keeps its event descriptor full")
}

// take hands posted requests to the node, in order.
func (k *connection) take() {
	defer k.wg.Done()
	if err := k.takeAll(); err != nil {
		k.log.Warn("host: a client breaks the rules and is thrown out", "err", err)
		_ = k.conn.Close()
	}
}

// takeAll returns nil when the connection has ended, and an error when the client is to blame.
func (k *connection) takeAll() error {
	posted := k.memory.Posted()
	for seen := uint32(0); ; {
		to := posted.Load()
		if to-seen > shm.Places {
			return fmt.Errorf("%d requests posted at once: there are %d places", to-seen, shm.Places)
		}
		for ; seen != to; seen++ {
			place := int(seen % shm.Places)
			if k.flying[place].Swap(true) {
				return fmt.Errorf("a request in place %d, where one is not done", place)
			}
			if !k.submit(place) {
				return nil
			}
		}
		if shm.Await(k.doorbell) != nil {
			return nil
		}
	}
}

// submit hands the request in a place to the node; false when the connection has ended.
func (k *connection) submit(place int) bool {
	var copied [shm.RequestBytes]byte
	copy(copied[:], k.memory.Request(place))
	var w shm.Request
	if err := w.Parse(copied[:], uint64(len(k.memory.Arena))); err != nil {
		k.finish(place, shm.Stats{}, fmt.Errorf("host: %w", err))
		return true
	}
	r := ring.Request{Data: k.memory.Floats(w.Data, w.Elements), Codec: w.Codec, Deadline: w.Deadline, LearningRate: w.Rate}
	if w.Weights != shm.NoWeights {
		r.Weights = k.memory.Floats(w.Weights, w.Elements)
	}
	r.Done = func(c ring.Completion) {
		k.finish(place, shm.Stats(c.Stats), c.Err)
		k.count(-1)
	}
	k.count(1)
	for {
		_, err := k.node.Submit(r)
		if err == nil {
			return true
		}
		if !errors.Is(err, ring.ErrBusy) { // others of this process use the node as well
			k.finish(place, shm.Stats{}, err)
			k.count(-1)
			return true
		}
		select {
		case <-k.quit:
			k.count(-1)
			return false
		case <-time.After(50 * time.Microsecond):
		}
	}
}

// count changes the number of requests that use the memory.
func (k *connection) count(by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open += by; k.open == 0 {
		k.empty.Broadcast()
	}
}

// finish writes how a request ended and sets its flag. It runs on the lane, and does not block. That the node is closed
// is not the request's error: the client learns that its NIC is gone.
func (k *connection) finish(place int, s shm.Stats, err error) {
	if errors.Is(err, ring.ErrClosed) {
		k.over.Store(true)
	} else {
		shm.PutResult(k.memory.Result(place), &s, err)
		flag := uint32(shm.Done)
		if err != nil {
			flag = shm.Failed
		}
		k.flying[place].Store(false)
		k.memory.DoneFlag(place).Store(flag)
	}
	select {
	case k.told <- struct{}{}:
	default:
	}
}

// tell rings the client's event descriptor after flags were set. It is not the lane that does: a client could make it wait.
func (k *connection) tell() {
	defer close(k.silent)
	for {
		select {
		case <-k.quit:
			return
		case <-k.told:
			if k.over.Load() {
				_ = k.conn.Close()
				return
			}
			if shm.Ring(k.done) != nil {
				return
			}
		}
	}
}
