// esbuild takes style sheets in; the type checker only has to know that they exist.
declare module "*.css";
