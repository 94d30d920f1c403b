// Echoes datagrams: node echo.js HOST PORT.
const [host, port] = process.argv.slice(2);
const socket = require("dgram").createSocket("udp4");
socket.on("message", (text, from) => socket.send(text, from.port, from.address));
socket.bind(Number(port), host);
