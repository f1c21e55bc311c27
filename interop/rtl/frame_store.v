// frame_store takes one Ethernet frame from a 64-bit stream and keeps it until it is released.
//
// The stream is AXI4-Stream: the first byte of the wire is bits 7:0 of the first word. Inside, words are turned round, so
// that byte 0 is bits 63:56 and a field of the wire is one slice. The first HEADER words are there all at once, zeros
// behind a frame that is shorter; the whole frame is read by address, one cycle later.
module frame_store #(
    parameter HEADER = 7,
    parameter ADDR   = 8              // 2^ADDR words are kept: 2048 bytes
) (
    input  wire                 clk,
    input  wire                 rst,

    input  wire [63:0]          s_tdata,
    input  wire [7:0]           s_tkeep,
    input  wire                 s_tlast,
    input  wire                 s_tvalid,
    output wire                 s_tready,

    output wire                 full,    // a frame is here
    output reg  [15:0]          length,  // its bytes, also those that did not find room
    output reg  [64*HEADER-1:0] header,  // word 0 on the left
    input  wire                 take,    // the frame is done with

    input  wire [ADDR-1:0]      raddr,
    output reg  [63:0]          rdata
);
    reg [63:0] words [0:(1<<ADDR)-1];
    reg [12:0] index;
    reg        ended;

    wire [63:0] turned = {s_tdata[7:0], s_tdata[15:8], s_tdata[23:16], s_tdata[31:24],
                          s_tdata[39:32], s_tdata[47:40], s_tdata[55:48], s_tdata[63:56]};
    wire [3:0]  bytes  = {3'b0, s_tkeep[0]} + {3'b0, s_tkeep[1]} + {3'b0, s_tkeep[2]} + {3'b0, s_tkeep[3]} +
                         {3'b0, s_tkeep[4]} + {3'b0, s_tkeep[5]} + {3'b0, s_tkeep[6]} + {3'b0, s_tkeep[7]};
    wire        push   = s_tvalid && s_tready;

    wire        more   = ended && index < HEADER;
    assign s_tready = !ended;
    assign full     = ended && !more;

    always @(posedge clk) begin
        rdata <= words[raddr];
        if (push && index < (1 << ADDR))
            words[index[ADDR-1:0]] <= turned;
    end

    always @(posedge clk) begin
        if (rst || take) begin
            ended  <= 1'b0;
            index  <= 13'd0;
            length <= 16'd0;
        end else if (push) begin
            ended <= s_tlast;
            // Longer than 64 KiB is no frame; the counters stand still instead of starting anew.
            if (index != 13'h1fff) begin
                index  <= index + 13'd1;
                length <= length + {12'd0, bytes};
            end
        end else if (more)
            index <= index + 13'd1;
        if ((push && index < HEADER) || more)
            header <= {header[64*HEADER-65:0], more ? 64'd0 : turned};
    end
endmodule
