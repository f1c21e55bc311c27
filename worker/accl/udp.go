package accl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
	"gradnic/worker/datagram"
)

// Rank is one rank of a communicator that can be used: UDP, or service/accl's inside the NIC.
type Rank interface {
	// Do makes a call and waits for its end. One runs at a time; others wait. When ctx ends first the call is given up,
	// and the communicator ends with it.
	Do(ctx context.Context, c Call) error
	// Stats are the counts so far.
	Stats() Stats
	// Close ends the rank, and a call that runs.
	Close() error
}

// UDP is a Rank on a socket of the kernel. The socket is not connected: a card sends to one port from all peers, and
// the sender's address tells which one it is. Messages that come between calls wait in the pool, as in a card.
type UDP struct {
	conn *net.UDPConn
	to   []netip.AddrPort
	out  []byte
	wg   sync.WaitGroup

	turn sync.Mutex // one call at a time

	mu     sync.Mutex // the engine, and out
	e      *Engine
	done   chan struct{} // closed when the call that runs ends
	closed bool
	start  time.Time
}

// socketBuffer is what is asked for, both ways: nothing holds a peer back, and what does not fit is lost for good.
const socketBuffer = 16 << 20

// Listen opens rank cfg.Rank at its address and port, in the calling thread's network namespace. It fails if the
// interface with that address does not take the longest frame.
func Listen(cfg Config) (*UDP, error) {
	e, err := NewEngine(cfg)
	if err != nil {
		return nil, err
	}
	cfg = e.Config()
	own := cfg.Ranks[cfg.Rank]
	if err := checkMTU(own.IP, cfg.Segment); err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own.IP.Netip(), own.Port)))
	if err != nil {
		return nil, fmt.Errorf("accl: rank %d: %w", cfg.Rank, err)
	}
	if err := setOptions(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("accl: rank %d: UDP socket: %w", cfg.Rank, err)
	}
	u := &UDP{conn: conn, e: e, out: make([]byte, wire.MaxDatagram), start: time.Now()}
	for _, p := range cfg.Ranks {
		u.to = append(u.to, netip.AddrPortFrom(p.IP.Netip(), p.Port))
	}
	meetNeighbours(own.IP, cfg.Ranks)
	u.wg.Go(u.receive)
	return u, nil
}

// checkMTU says what is wrong with the interface that has an address.
func checkMTU(ip inet.Addr, segment int) error {
	if ip[0] == 127 { // all of 127.0.0.0/8 is the loopback's, of which it tells one address
		return nil
	}
	ifc, err := datagram.InterfaceOf(ip)
	if err != nil {
		return fmt.Errorf("accl: %w", err)
	}
	_, _, length := wire.Piece(segment, 0)
	if need := length + inet.IPv4Len + inet.UDPLen; ifc.MTU < need {
		return fmt.Errorf("accl: %s has an MTU of %d, and segments of %d bytes need %d: ip link set dev %s mtu %d or more, at every rank",
			ifc.Name, ifc.MTU, segment, need, ifc.Name, wire.MTU)
	}
	return nil
}

// setOptions makes what the kernel sends like what a card sends: no checksum, and never a fragment, without forbidding
// fragments.
func setOptions(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	if err := raw.Control(func(fd uintptr) {
		s := int(fd)
		if unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer) // as much as is allowed
		}
		if unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
		opErr = errors.Join(
			unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1),
			unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_INTERFACE),
		)
	}); err != nil {
		return err
	}
	return opErr
}

func (u *UDP) now() int64 { return int64(time.Since(u.start)) }

// receive is the goroutine that reads the socket. It also sends what follows from what it read.
func (u *UDP) receive() {
	buf := make([]byte, wire.MaxDatagram+1)
	for {
		n, from, err := u.conn.ReadFromUDPAddrPort(buf)
		u.mu.Lock()
		if err != nil {
			if !u.closed {
				u.e.Abort(fmt.Errorf("receive: %w", err))
			}
			u.settle()
			u.mu.Unlock()
			return
		}
		ip, _ := inet.AddrFromNetip(from.Addr())
		if peer := u.e.PeerAt(ip, from.Port()); peer >= 0 {
			u.e.Receive(peer, buf[:n], u.now())
		} else {
			u.e.Foreign()
		}
		u.send()
		u.mu.Unlock()
	}
}

// send sends what there is to send, and tells the caller when its call has ended. The lock is held.
func (u *UDP) send() {
	for {
		to, n, ok := u.e.Pending()
		if !ok {
			break
		}
		u.e.Put(u.out[:n], u.now())
		if err := u.write(u.out[:n], u.to[to]); err != nil {
			u.e.Abort(fmt.Errorf("send to rank %d: %w", to, err))
		}
	}
	u.settle()
}

// write sends a datagram. A device's full queue is waited for: nobody sends it again.
func (u *UDP) write(b []byte, to netip.AddrPort) error {
	for try := 0; ; try++ {
		_, err := u.conn.WriteToUDPAddrPort(b, to)
		if !errors.Is(err, unix.ENOBUFS) || try == 1000 {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (u *UDP) settle() {
	if done, _ := u.e.Done(); done && u.done != nil {
		close(u.done)
		u.done = nil
	}
}

// Do implements Rank.
func (u *UDP) Do(ctx context.Context, c Call) error {
	u.turn.Lock()
	defer u.turn.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%v: %w: %w", c.Collective, ErrRefused, context.Cause(ctx))
	}
	u.mu.Lock()
	if err := u.e.Begin(c, u.now()); err != nil {
		u.mu.Unlock()
		return err
	}
	done := make(chan struct{})
	u.done = done
	u.send()
	wait := u.e.Timeout()
	u.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-done:
			u.mu.Lock()
			_, err := u.e.Done()
			u.mu.Unlock()
			return err
		case <-ctx.Done():
			u.mu.Lock()
			u.e.Abort(context.Cause(ctx))
			u.settle()
			u.mu.Unlock()
		case <-timer.C:
			u.mu.Lock()
			now := u.now()
			timer.Reset(time.Duration(max(u.e.Tick(now)-now, 0)))
			u.settle()
			u.mu.Unlock()
		}
	}
}

// Stats implements Rank.
func (u *UDP) Stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.e.Stats()
}

// Close implements Rank. It may be called again.
func (u *UDP) Close() error {
	u.mu.Lock()
	again := u.closed
	u.closed = true
	u.e.Abort(net.ErrClosed)
	u.settle()
	u.mu.Unlock()
	var err error
	if !again {
		err = u.conn.Close()
	}
	u.wg.Wait()
	return err
}
