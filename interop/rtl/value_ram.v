// value_ram is a memory of 64-bit words with one port to read, a cycle later, and one to write.
module value_ram #(
    parameter ADDR = 10
) (
    input  wire            clk,
    input  wire [ADDR-1:0] raddr,
    output reg  [63:0]     rdata,
    input  wire            we,
    input  wire [ADDR-1:0] waddr,
    input  wire [63:0]     wdata
);
    reg [63:0] words [0:(1<<ADDR)-1];

    always @(posedge clk) begin
        rdata <= words[raddr];
        if (we)
            words[waddr] <= wdata;
    end
endmodule
