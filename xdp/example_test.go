package xdp_test

import (
	"context"
	"log"
	"net"
	"time"

	"gradnic/xdp"
)

// Receive the frames of one queue and drop them, until the context ends.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	port, err := net.InterfaceByName("veth0")
	if err != nil {
		log.Fatal(err)
	}
	u, err := xdp.NewUMEM(xdp.UMEMOptions{Chunks: 4096, ChunkSize: 2048})
	if err != nil {
		log.Fatal(err)
	}
	s, err := u.Open(xdp.SocketOptions{IfIndex: port.Index})
	if err != nil {
		log.Fatal(err)
	}
	st, err := xdp.Attach(xdp.AttachOptions{IfIndex: port.Index})
	if err != nil {
		log.Fatal(err)
	}
	if err := st.SetWholePort(true); err != nil {
		log.Fatal(err)
	}
	if err := st.Bind(0, s); err != nil {
		log.Fatal(err)
	}
	chunks := make([]uint64, u.Chunks())
	for i := range chunks {
		chunks[i] = uint64(i * u.ChunkSize())
	}
	s.Fill(chunks)
	log.Printf("%v, program runs %v", s.Mode(), st.Mode())

	var batch [64]xdp.Desc
	for ctx.Err() == nil {
		n := s.Receive(batch[:])
		for d := batch[:n]; len(d) > 0; {
			d = d[s.FillDescs(d):]
		}
		if n == 0 {
			if err := s.WakeReceive(); err != nil {
				log.Fatal(err)
			}
			if _, err := s.Wait(time.Millisecond); err != nil {
				log.Fatal(err)
			}
		}
	}

	// Detach first, so that frames go to the kernel again while the rest closes.
	for _, c := range []interface{ Close() error }{st, s, u} {
		if err := c.Close(); err != nil {
			log.Fatal(err)
		}
	}
}
