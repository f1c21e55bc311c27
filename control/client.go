package control

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "gradnic/control/api/v1"
)

// Client is a connection to a NIC's API.
type Client struct {
	apiv1.JobServiceClient
	apiv1.NICServiceClient
	apiv1.SightServiceClient
	conn *grpc.ClientConn
}

// Dial makes a client of the API at address, as SplitAddress takes it. It
// connects with the first call, which fails at once when nobody answers.
//
// Over TCP the client needs certificates: use DialTLS.
func Dial(address string) (*Client, error) { return DialTLS(address, TLSFiles{}) }

// DialTLS is Dial with certificates, which TCP needs and a Unix socket has no use for.
func DialTLS(address string, files TLSFiles) (*Client, error) {
	network, where, err := SplitAddress(address)
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if network == "tcp" {
		config, err := files.Client()
		if err != nil {
			return nil, fmt.Errorf("address %s: %w", address, err)
		}
		creds = credentials.NewTLS(config)
	}
	target := "passthrough:///" + where
	if network == "unix" {
		target = "unix://" + where
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return &Client{
		JobServiceClient:   apiv1.NewJobServiceClient(conn),
		NICServiceClient:   apiv1.NewNICServiceClient(conn),
		SightServiceClient: apiv1.NewSightServiceClient(conn),
		conn:               conn,
	}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
