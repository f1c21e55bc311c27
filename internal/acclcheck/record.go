package acclcheck

import (
	"bytes"
	"fmt"
	"os"
)

// Packet is one recorded UDP payload.
type Packet struct {
	From, To int // ranks
	Payload  []byte
}

// Record reads recorded packets: a line each of the sender's rank, the receiver's, and the UDP payload in hexadecimal.
func Record(file string) (all []Packet, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		var p Packet
		if _, err := fmt.Sscanf(string(line), "%d %d %x", &p.From, &p.To, &p.Payload); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, len(all)+1, err)
		}
		all = append(all, p)
	}
	return all, nil
}
