// worker_table finds the rank of a station by its Ethernet and IPv4 addresses, one row a cycle, and gives the addresses
// of a rank for what is sent. Rows are written by the control plane.
module worker_table #(
    parameter RANK = 5                // 2^RANK workers at most
) (
    input  wire            clk,
    input  wire            rst,
    input  wire            we,
    input  wire [RANK-1:0] wrank,
    input  wire [47:0]     wmac,
    input  wire [31:0]     wip,

    input  wire [RANK:0]   workers,
    input  wire            start,     // look for mac and ip, which stay as they are until done
    input  wire [47:0]     mac,
    input  wire [31:0]     ip,
    output reg             done,
    output reg             found,
    output reg  [RANK-1:0] rank,

    input  wire [RANK-1:0] to,
    output wire [47:0]     to_mac,
    output wire [31:0]     to_ip
);
    reg [79:0]   rows [0:(1<<RANK)-1];
    reg          busy;

    assign {to_mac, to_ip} = rows[to];

    always @(posedge clk) begin
        done <= 1'b0;
        if (we)
            rows[wrank] <= {wmac, wip};
        if (rst) begin
            busy  <= 1'b0;
            found <= 1'b0;
        end else if (start) begin
            busy  <= 1'b1;
            found <= 1'b0;
            rank  <= {RANK{1'b0}};
        end else if (busy) begin
            if (rows[rank] == {mac, ip}) begin
                busy  <= 1'b0;
                found <= 1'b1;
                done  <= 1'b1;
            end else if ({1'b0, rank} + 1'b1 >= workers) begin
                busy  <= 1'b0;
                done  <= 1'b1;
            end else
                rank <= rank + 1'b1;
        end
    end
endmodule
