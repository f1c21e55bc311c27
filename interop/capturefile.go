package interop

import (
	"bufio"
	"fmt"
	"os"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// captureFile reads pcap and pcapng.
type captureFile struct {
	file *os.File
	next func() ([]byte, gopacket.CaptureInfo, error)
}

func newCaptureFile(f *os.File) (*captureFile, error) {
	b := bufio.NewReaderSize(f, 1<<16)
	magic, err := b.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("no capture: %w", err)
	}
	var link layers.LinkType
	c := &captureFile{file: f}
	if string(magic) == "\x0a\x0d\x0d\x0a" {
		r, err := pcapgo.NewNgReader(b, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return nil, err
		}
		link, c.next = r.LinkType(), r.ReadPacketData
	} else {
		r, err := pcapgo.NewReader(b)
		if err != nil {
			return nil, err
		}
		link, c.next = r.LinkType(), r.ReadPacketData
	}
	if link != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("link type %v: Ethernet is needed", link)
	}
	return c, nil
}

func (c *captureFile) close() { _ = c.file.Close() } // it was read only
