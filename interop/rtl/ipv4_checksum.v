// ipv4_checksum is the checksum of a header without options (RFC 791), whose type of service is 0 and which is not a
// fragment; dont_fragment is the one flag.
module ipv4_checksum (
    input  wire [15:0] total,
    input  wire        dont_fragment,
    input  wire [7:0]  ttl,
    input  wire [7:0]  protocol,
    input  wire [31:0] src,
    input  wire [31:0] dst,
    output wire [15:0] checksum
);
    wire [19:0] sum = 20'h04500 + {4'd0, total} + {5'd0, dont_fragment, 14'd0} + {4'd0, ttl, protocol} +
                      {4'd0, src[31:16]} + {4'd0, src[15:0]} + {4'd0, dst[31:16]} + {4'd0, dst[15:0]};
    wire [16:0] once = {1'b0, sum[15:0]} + {13'd0, sum[19:16]};
    assign checksum = ~(once[15:0] + {15'd0, once[16]});
endmodule
