package xdp

import "golang.org/x/sys/unix"

// Desc says where a frame (or one piece of a multi-buffer frame) lies in the
// UMEM. It has the layout of the kernel's struct xdp_desc, so that rings copy it
// as it is.
type Desc struct {
	// Addr is the offset of the first byte in the UMEM area. The kernel hands
	// out chunk start + 256 + UMEMOptions.Headroom for the first piece of a
	// received frame; UMEM.ChunkStart gives the chunk back.
	Addr uint64
	// Len is the number of bytes from Addr on. It never crosses the chunk's end.
	Len uint32
	// Options is 0, or PacketContinues when the next descriptor belongs to the
	// same frame (only on sockets opened with MultiBuffer).
	Options uint32
}

const (
	// PacketContinues marks a descriptor whose frame goes on in the next one
	// (XDP_PKT_CONTD). The last descriptor of a frame has it clear.
	PacketContinues = unix.XDP_PKT_CONTD

	// MaxPieces is how many descriptors one multi-buffer frame may have: the
	// kernel's MAX_SKB_FRAGS + 1. A longer chain is counted as
	// Statistics.TxInvalidDescs and is never completed.
	MaxPieces = 18

	// KernelHeadroom is the room that the kernel keeps at the start of each
	// chunk in front of a received frame (XDP_PACKET_HEADROOM), before
	// UMEMOptions.Headroom.
	KernelHeadroom = 256
)

// Continues tells whether the next descriptor belongs to the same frame.
func (d Desc) Continues() bool { return d.Options&PacketContinues != 0 }
