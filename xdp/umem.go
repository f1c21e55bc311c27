package xdp

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// UMEMOptions describes the memory that frames live in.
type UMEMOptions struct {
	// Chunks is the number of frames, at least 1. A chunk holds one frame, or one
	// piece of a multi-buffer frame. There is no default: the caller knows
	// ports x queues x depth.
	Chunks int
	// ChunkSize is 2048 or 4096 bytes (the page size is the kernel's limit for
	// aligned chunks). Zero means 4096.
	ChunkSize int
	// Headroom is how many bytes the kernel leaves free in front of a received
	// frame, after its own 256. Zero means none.
	Headroom int
	// HugePages asks for memory in huge pages (2 MiB on x86-64). When the system
	// has none to give, ordinary pages are used and UMEM.HugePages says so with
	// the reason; RequireHugePages makes that an error instead.
	HugePages        bool
	RequireHugePages bool
	// NoAnchor registers the memory with the first socket that is opened instead
	// of with an anchor socket; see the package documentation. It is implied when
	// the first socket asks for zero-copy.
	NoAnchor bool
}

// MaxChunks is the largest number of chunks: the kernel counts them in 32 bits.
const MaxChunks = math.MaxUint32

const hugePageSize = 2 << 20

// UMEM is a memory area divided into equal chunks, shared by any number of sockets.
// Opening and closing is safe for use by several goroutines; the memory itself
// belongs to whoever owns its frames.
type UMEM struct {
	area      []byte
	chunks    int
	chunkSize int
	headroom  int
	mask      uint64 // clears an address to its chunk's start
	noAnchor  bool
	huge      bool
	hugeErr   error

	mu              sync.Mutex
	closed          bool
	anchor          int // fd of the anchor socket, -1 when there is none
	noAnchorBecause error
	shared          sharedMode
	sockets         map[*Socket]struct{}
}

// sharedMode is what every later socket inherits from the first.
type sharedMode struct {
	fixed      bool
	zeroCopy   bool
	needWakeup bool
	multi      bool
}

// check validates sizes before any system call. bytes is computed in 64 bits.
func (o *UMEMOptions) check() (bytes uint64, err error) {
	if o.ChunkSize == 0 {
		o.ChunkSize = 4096
	}
	switch {
	case o.ChunkSize != 2048 && o.ChunkSize != 4096:
		return 0, fmt.Errorf("umem: chunk size %d: legal are 2048 and 4096", o.ChunkSize)
	case o.ChunkSize > os.Getpagesize():
		return 0, fmt.Errorf("umem: chunk size %d: above this machine's page size %d", o.ChunkSize, os.Getpagesize())
	case o.Chunks < 1 || uint64(o.Chunks) > MaxChunks:
		return 0, fmt.Errorf("umem: %d chunks: legal are 1 to %d", o.Chunks, uint64(MaxChunks))
	case o.Headroom < 0 || o.Headroom >= o.ChunkSize-KernelHeadroom:
		return 0, fmt.Errorf("umem: headroom %d: legal are 0 to %d with chunks of %d", o.Headroom, o.ChunkSize-KernelHeadroom-1, o.ChunkSize)
	}
	hi, lo := bits.Mul64(uint64(o.Chunks), uint64(o.ChunkSize))
	if hi != 0 || lo > math.MaxInt64-hugePageSize {
		return 0, fmt.Errorf("umem: %d chunks of %d bytes: more than an address space", o.Chunks, o.ChunkSize)
	}
	return lo, nil
}

// NewUMEM reserves the memory. It is registered with the kernel, and so pinned and
// charged to RLIMIT_MEMLOCK, when the first socket is opened: the limit is looked at
// then, the memory that is available here.
func NewUMEM(o UMEMOptions) (*UMEM, error) {
	size, err := o.check()
	if err != nil {
		return nil, err
	}
	if err := admitMemory(size, systemLimits); err != nil {
		return nil, err
	}
	u := &UMEM{
		chunks: o.Chunks, chunkSize: o.ChunkSize, headroom: o.Headroom,
		mask: ^uint64(o.ChunkSize - 1), noAnchor: o.NoAnchor, anchor: -1,
		sockets: make(map[*Socket]struct{}),
	}
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	var area []byte
	if o.HugePages || o.RequireHugePages {
		rounded := (size + hugePageSize - 1) &^ (hugePageSize - 1)
		area, err = unix.Mmap(-1, 0, int(rounded), prot, flags|unix.MAP_HUGETLB|unix.MAP_POPULATE)
		if err != nil {
			u.hugeErr = fmt.Errorf("umem: %d bytes in huge pages: %w (vm.nr_hugepages needs %d free)", size, err, rounded/hugePageSize)
			if o.RequireHugePages {
				return nil, u.hugeErr
			}
		}
		u.huge = err == nil
	}
	if !u.huge {
		area, err = unix.Mmap(-1, 0, int(size), prot, flags)
		if err != nil {
			return nil, fmt.Errorf("umem: mmap %d bytes: %w", size, err)
		}
	}
	// A child between fork and exec must not make our pages copy-on-write while
	// the kernel writes into them.
	if err := unix.Madvise(area, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("umem: madvise: %w", err), unix.Munmap(area))
	}
	u.area = area
	return u, nil
}

// Bytes is the whole area, Chunks x ChunkSize bytes; chunk i starts at i x ChunkSize.
func (u *UMEM) Bytes() []byte {
	n := u.chunks * u.chunkSize
	return u.area[:n:n]
}

// Chunks returns the number of chunks.
func (u *UMEM) Chunks() int { return u.chunks }

// ChunkSize returns the bytes of a chunk, 2048 or 4096.
func (u *UMEM) ChunkSize() int { return u.chunkSize }

// Headroom returns the offset in its chunk of a received frame: the kernel's 256
// bytes and UMEMOptions.Headroom.
func (u *UMEM) Headroom() int { return KernelHeadroom + u.headroom }

// MaxFrame is the longest frame that one chunk can receive; a longer one needs
// MultiBuffer, else the kernel drops it and counts Statistics.RxDropped.
func (u *UMEM) MaxFrame() int { return u.chunkSize - u.Headroom() }

// HugePages tells whether the memory is in huge pages and, if they were asked for
// and refused, why.
func (u *UMEM) HugePages() (bool, error) { return u.huge, u.hugeErr }

// ChunkStart returns the address of the chunk that addr lies in.
func (u *UMEM) ChunkStart(addr uint64) uint64 { return addr & u.mask }

// Frame is the bytes that d describes; its capacity reaches to the chunk's end.
func (u *UMEM) Frame(d Desc) []byte {
	end := d.Addr&u.mask + uint64(u.chunkSize)
	return u.area[d.Addr : d.Addr+uint64(d.Len) : end]
}

// Anchored tells whether an anchor socket holds the registration and, if not
// although it was wanted, why. It has a meaning once a socket was opened.
func (u *UMEM) Anchored() (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.anchor >= 0, u.noAnchorBecause
}

// Close gives the memory back. It fails while sockets are open: the kernel would
// go on writing into pages that the process no longer has. It is idempotent.
func (u *UMEM) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil
	}
	if n := len(u.sockets); n != 0 {
		return fmt.Errorf("umem: close: %d sockets are open", n)
	}
	u.closed = true
	var errs []error
	if u.anchor >= 0 {
		if err := unix.Close(u.anchor); err != nil {
			errs = append(errs, fmt.Errorf("umem: close anchor: %w", err))
		}
		u.anchor = -1
	}
	if err := unix.Munmap(u.area); err != nil {
		errs = append(errs, fmt.Errorf("umem: munmap: %w", err))
	}
	u.area = nil
	return errors.Join(errs...)
}

// register tells the kernel about the area (XDP_UMEM_REG) on a socket.
func (u *UMEM) register(fd int) error {
	reg := unix.XDPUmemReg{
		Addr:     areaAddress(u.area),
		Len:      uint64(u.chunks) * uint64(u.chunkSize),
		Size:     uint32(u.chunkSize),
		Headroom: uint32(u.headroom),
	}
	if err := admitLock(reg.Len, systemLimits); err != nil {
		return err
	}
	err := setsockoptUmemReg(fd, &reg)
	// What a closed socket had pinned is taken off the account a moment later.
	for range 20 {
		if !errors.Is(err, unix.ENOBUFS) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		err = setsockoptUmemReg(fd, &reg)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("register umem of %d bytes: %w (over RLIMIT_MEMLOCK: raise it or grant CAP_IPC_LOCK)", reg.Len, err)
	default:
		return fmt.Errorf("register umem of %d bytes: %w", reg.Len, err)
	}
}
