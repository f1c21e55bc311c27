package layers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/accl"
	"gradnic/wire/bump"
	"gradnic/wire/native"
	"gradnic/wire/ring"
	"gradnic/wire/switchml"
)

// The layer types. gopacket leaves the numbers 1000 to 1999 to applications.
var (
	LayerTypeSwitchML = gopacket.RegisterLayerType(1880, gopacket.LayerTypeMetadata{
		Name: "SwitchML", Decoder: decoder(func() message { return new(SwitchML) })})
	LayerTypeNative = gopacket.RegisterLayerType(1881, gopacket.LayerTypeMetadata{
		Name: "GradnicNative", Decoder: decoder(func() message { return new(Native) })})
	LayerTypeACCL = gopacket.RegisterLayerType(1882, gopacket.LayerTypeMetadata{
		Name: "ACCL", Decoder: decoder(func() message { return new(ACCL) })})
	LayerTypeRing = gopacket.RegisterLayerType(1883, gopacket.LayerTypeMetadata{
		Name: "GradnicRing", Decoder: decoder(func() message { return new(Ring) })})
	LayerTypeBump = gopacket.RegisterLayerType(1884, gopacket.LayerTypeMetadata{
		Name: "GradnicBump", Decoder: decoder(func() message { return new(Bump) })})
)

// Register binds the layers to their UDP ports and to the bump's EtherType in gopacket's own tables, which all of a
// program's decoding shares. Call it before decoding begins.
func Register() {
	for p := layers.UDPPort(switchml.PortBase); switchml.IsPort(uint16(p)); p++ {
		layers.RegisterUDPPortLayerType(p, LayerTypeSwitchML)
	}
	layers.RegisterUDPPortLayerType(native.Port, LayerTypeNative)
	layers.RegisterUDPPortLayerType(ring.Port, LayerTypeRing)
	for rank := range layers.UDPPort(accl.MaxRanks) {
		layers.RegisterUDPPortLayerType(accl.BasePort+rank, LayerTypeACCL)
	}
	layers.EthernetTypeMetadata[bump.EtherType] = layers.EnumMetadata{
		DecodeWith: LayerTypeBump, Name: "GradnicBump", LayerType: LayerTypeBump}
}

// message is what all layers here are.
type message interface {
	gopacket.Layer
	gopacket.DecodingLayer
	gopacket.SerializableLayer
}

// decoder decodes a new layer and gives what follows it to the next.
func decoder(layer func() message) gopacket.DecodeFunc {
	return func(data []byte, p gopacket.PacketBuilder) error {
		l := layer()
		if err := l.DecodeFromBytes(data, p); err != nil {
			return err
		}
		p.AddLayer(l)
		return p.NextDecoder(l.NextLayerType())
	}
}

// refuse makes a wire package's fault an error, and says so when the capture has less than the packet had.
func refuse(f fmt.Stringer, df gopacket.DecodeFeedback) error {
	if strings.HasSuffix(f.String(), "-short") {
		df.SetTruncated()
	}
	return errors.New(f.String())
}

// put makes room for a header before what is there.
func put(b gopacket.SerializeBuffer, n int) ([]byte, int, error) {
	payload := len(b.Bytes())
	h, err := b.PrependBytes(n)
	return h, payload, err
}
